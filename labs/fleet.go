package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/orderfanout/internal/localserver"
)

// fleet is a number of workers of one role, each a process.
type fleet struct {
	s    *session
	role string   // LAB/ROLE
	args []string // what each is told
	// sameName gives a replacement the name of the worker that it replaces, as a restart does; otherwise it gets a new one.
	sameName bool

	members []*member
	named   int
}

// member is one worker process.
type member struct {
	name   string
	proc   *localserver.Process
	output *output
}

// readyLimit is how long a worker may take to start on a busy machine.
const readyLimit = 30 * time.Second

// start starts n more workers and returns when all are connected. Where traced is not 0, the first of them begins alone, and its
// first commands are printed.
func (f *fleet) start(ctx context.Context, n, traced int) {
	if traced > 0 {
		m := f.launch("", fmt.Sprintf("trace=%d", traced))
		f.awaitReady(ctx, m)
		f.s.note("a worker sends")
		for range traced {
			select {
			case line := <-m.output.commands:
				f.s.say("     %s", f.s.bold(line))
			case <-m.proc.Exited():
				check(fmt.Errorf("worker %s ended: %w", m.name, m.output.rest()))
			case <-ctx.Done():
				check(ctx.Err())
			}
		}
		f.s.note("and so on")
		n--
	}
	var fresh []*member
	for range n {
		fresh = append(fresh, f.launch(""))
	}
	for _, m := range fresh {
		f.awaitReady(ctx, m)
	}
}

// launch starts a worker and does not wait for it.
func (f *fleet) launch(name string, more ...string) *member {
	if name == "" {
		f.named++
		name = fmt.Sprintf("w%d", f.named)
	}
	args := append([]string{workerCommand, f.role, name}, f.args...)
	cmd := exec.Command(must(os.Executable()), append(args, more...)...)
	cmd.Env = append(os.Environ(), redisVariable+"="+f.s.redisURL, postgresVariable+"="+f.s.postgresURL)
	out := &output{ready: make(chan struct{}), commands: make(chan string, 100)}
	m := &member{name: name, output: out, proc: must(localserver.StartProcess(cmd, out, syscall.SIGKILL))}
	f.members = append(f.members, m)
	return m
}

func (f *fleet) awaitReady(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	select {
	case <-m.output.ready:
	case <-m.proc.Exited():
		check(fmt.Errorf("worker %s ended: %w", m.name, m.output.rest()))
	case <-ctx.Done():
		check(fmt.Errorf("start worker %s: %w", m.name, ctx.Err()))
	}
}

// crash is kill -9 for one worker. When it returns, the process is gone.
func crash(m *member) {
	check(m.proc.Signal(syscall.SIGKILL))
	<-m.proc.Exited()
}

// kill is crash for a worker that revive is not to start again.
func (f *fleet) kill(m *member) {
	crash(m)
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
}

// killWhile kills a random worker n times while done, of total, goes up, and starts another in its place each time. The moments are
// drawn beforehand: "when so many are done". So a busy machine changes nothing.
func (f *fleet) killWhile(ctx context.Context, n, total int, done func() int) {
	moments := make([]int, n)
	for i := range moments {
		moments[i] = total/50 + f.s.random.IntN(total*9/10)
	}
	slices.Sort(moments)
	for _, moment := range moments {
		var atWork []*member
		f.s.until(ctx, fmt.Sprintf("%d of %d are done", moment, total), func() bool {
			now := done()
			f.s.progress("done", now, total)
			atWork = f.atWork()
			return now >= moment && len(atWork) > 0
		})
		f.replace(atWork[f.s.random.IntN(len(atWork))])
	}
}

// replace kills a worker and starts another in its place.
func (f *fleet) replace(m *member) {
	f.kill(m)
	name := ""
	if f.sameName {
		name = m.name
	}
	f.launch(name)
}

// atWork returns the workers that are connected. It fails where a worker has ended by itself.
func (f *fleet) atWork() []*member {
	var connected []*member
	for _, m := range f.members {
		if !m.proc.Running() {
			check(fmt.Errorf("worker %s ended: %w", m.name, m.output.rest()))
		}
		select {
		case <-m.output.ready:
			connected = append(connected, m)
		default: // still starting: killing it would show nothing
		}
	}
	return connected
}

// revive starts the workers again that have died, under their names, and returns how many had.
func (f *fleet) revive() int {
	dead := 0
	for _, m := range slices.Clone(f.members) {
		if !m.proc.Running() {
			if status, ok := m.proc.State().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				check(fmt.Errorf("worker %s ended: %w", m.name, m.output.rest()))
			}
			dead++
			f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
			f.launch(m.name)
		}
	}
	return dead
}

// term sends SIGTERM to all workers, as a deploy does, and waits until they have ended: at once, or, where the role finishes its
// job first, a moment later.
func (f *fleet) term() {
	for _, m := range f.members {
		check(m.proc.Signal(syscall.SIGTERM))
	}
	f.finish()
}

// finish waits until all workers have ended.
func (f *fleet) finish() {
	for _, m := range f.members {
		<-m.proc.Exited()
		if status, ok := m.proc.State().Sys().(syscall.WaitStatus); !ok || !status.Signaled() && status.ExitStatus() != 0 {
			check(fmt.Errorf("worker %s ended: %w", m.name, m.output.rest()))
		}
	}
	f.members = nil
}

// stop kills all that still run. To be deferred.
func (f *fleet) stop() {
	for _, m := range slices.Clone(f.members) {
		f.kill(m)
	}
}

// output reads what a worker prints.
type output struct {
	mu       sync.Mutex
	text     bytes.Buffer // an unfinished line
	others   []string
	ready    chan struct{}
	commands chan string
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	for {
		line, err := o.text.ReadString('\n')
		if err != nil {
			o.text.WriteString(line)
			return len(b), nil
		}
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, commandLine); ok {
			o.commands <- command
		} else if line == readyLine {
			close(o.ready)
		} else {
			o.others = append(o.others, line)
		}
	}
}

// rest returns what a worker has printed beyond the lines meant for the lab.
func (o *output) rest() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.others) == 0 {
		return errors.New("it said nothing")
	}
	return errors.New(strings.Join(o.others, "\n"))
}
