package localserver

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one child that has been started.
type process struct {
	cmd *exec.Cmd
	out *lines
	// done is closed once the child has ended and was waited for.
	done chan struct{}
}

// startProcess starts cmd in a process group of its own. Its output goes to out, where that is not nil, and its last
// lines are kept. On Linux the child gets the signal death when this program ends.
func startProcess(cmd *exec.Cmd, out io.Writer, death syscall.Signal) (*process, error) {
	p := &process{cmd: cmd, out: &lines{to: out}, done: make(chan struct{})}
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

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig. A process that has ended already is no error.
func (p *process) signal(sig syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(p.pid(), sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal %s %d: %w", p.cmd.Path, p.pid(), err)
	}
	return nil
}

// wait tells whether the process ended within d.
func (p *process) wait(d time.Duration) bool {
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
