package localserver

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one child that has been started.
type Process struct {
	cmd *exec.Cmd
	out *lines
	// done is closed once the child has ended and was waited for.
	done chan struct{}
}

// StartProcess starts cmd in a process group of its own. Its output goes to out, where that is not nil, and its last
// lines are kept. On Linux the child gets the signal death when this program ends.
func StartProcess(cmd *exec.Cmd, out io.Writer, death syscall.Signal) (*Process, error) {
	p := &Process{cmd: cmd, out: &lines{to: out}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.WaitDelay = time.Second // grandchildren may hold the output open
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setDeathSignal(cmd.SysProcAttr, death)

	started := make(chan error)
	go func() {
		// Linux sends the death signal when the thread that started the child ends, so this thread stays until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid returns its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running tells whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exited returns a channel that is closed once it has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// State tells how it ended; nil while it runs.
func (p *Process) State() *os.ProcessState {
	if p.Running() {
		return nil
	}
	return p.cmd.ProcessState
}

// Signal sends sig. A process that has ended already is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.Pid(), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal %s %d: %w", p.cmd.Path, p.Pid(), err)
	}
	return nil
}

// Wait tells whether the process ended within d.
func (p *Process) Wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// lines passes on what is written to it and keeps the last lines.
type lines struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte
	last []string
}

const linesKept = 20

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			break
		}
		l.last = append(l.last, string(l.rest[:i]))
		l.rest = l.rest[i+1:]
	}
	if extra := len(l.last) - linesKept; extra > 0 {
		l.last = append([]string(nil), l.last[extra:]...)
	}
	if l.to != nil {
		l.to.Write(b) // a reader that is gone must not stop the server
	}
	return len(b), nil
}

// contains tells whether one of the kept lines has the text in it.
func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.last {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(append(l.last[:len(l.last):len(l.last)], string(l.rest)), "\n")
}
