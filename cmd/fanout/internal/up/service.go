package up

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/orderfanout/internal/localserver"
)

// service is one program that is kept running.
type service struct {
	name    string
	program string
	port    int
	env     []string // what it has beside the environment of this program
	pidFile string

	firstEnv []string // what its next life alone has

	mu   sync.Mutex
	proc *localserver.Process
}

func (s *service) url() string { return "http://127.0.0.1:" + strconv.Itoa(s.port) }

func (s *service) start(out *source) error {
	cmd := exec.Command(s.program)
	cmd.Env = append(append(os.Environ(), s.env...), s.firstEnv...)
	// It drains also when this program is killed.
	proc, err := localserver.StartProcess(cmd, out, syscall.SIGTERM)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.firstEnv = nil
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	return os.WriteFile(s.pidFile, []byte(strconv.Itoa(proc.Pid())+"\n"), 0o644)
}

func (s *service) current() *localserver.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// keep starts the service again whenever it ended, until ctx is done; it returns when the service has been drained.
// Where that takes longer than grace, or hurry is done, it is killed, and keep returns an error.
func (s *service) keep(ctx, hurry context.Context, c *console, restartAfter, grace time.Duration) error {
	out := c.source(s.name)
	for ctx.Err() == nil {
		proc := s.current()
		if proc.Running() {
			select {
			case <-ctx.Done():
				return s.drain(hurry, proc, out, grace)
			case <-proc.Exited():
			}
		}
		out.flush()
		c.note("%s ended (%s), starting it again in %s", s.name, proc.State(), restartAfter)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartAfter):
		}
		if err := s.start(out); err != nil {
			c.note("%v", err)
			continue
		}
		c.note("%s runs again, pid %d", s.name, s.current().Pid())
	}
	return s.drain(hurry, s.current(), out, grace)
}

func (s *service) drain(hurry context.Context, proc *localserver.Process, out *source, grace time.Duration) error {
	defer os.Remove(s.pidFile)
	defer out.flush()
	if err := proc.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	proc.Signal(syscall.SIGCONT) // in case that somebody has frozen it
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-proc.Exited():
		return drained(s.name, proc.State())
	case <-late.C:
	case <-hurry.Done():
	}
	if err := proc.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-proc.Exited()
	return fmt.Errorf("%s had not drained and was killed", s.name)
}

// drained returns an error where the service did not exit with 0. A service that had only just been started, and did not
// listen to signals yet, ends by the signal itself and has nothing to drain.
func drained(name string, state *os.ProcessState) error {
	if status, ok := state.Sys().(syscall.WaitStatus); state.Success() || ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
		return nil
	}
	return fmt.Errorf("%s ended with: %s", name, state)
}

// ready tells whether the service can do its job.
func (s *service) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// waitReady waits until all services are ready, and returns the names of those that are not when ctx is done.
func waitReady(ctx context.Context, services []*service) []string {
	var late []string
	for _, s := range services {
		for !s.ready(ctx) {
			select {
			case <-ctx.Done():
				late = append(late, s.name)
			case <-time.After(50 * time.Millisecond):
				continue
			}
			break
		}
	}
	return late
}

func names(services []*service) string {
	all := make([]string, len(services))
	for i, s := range services {
		all[i] = s.name
	}
	return strings.Join(all, ", ")
}
