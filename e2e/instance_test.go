package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/orderfanout/internal/localserver"
)

// instance is one process of a service.
type instance struct {
	*localserver.Process
	service, name string
	url           string
	log           *logBuffer
	started       time.Time
}

// run starts one process of a service under a consumer name and waits until it is ready.
func (s *system) run(service, name string, env ...string) *instance {
	s.Helper()
	in := s.launch(service, name, env...)
	s.eventually(service+" "+name+" is ready", func() bool {
		if !in.Running() {
			s.Fatalf("%s ended: %v\n%s", service, in.State(), in.log)
		}
		return in.ready()
	})
	return in
}

// launch is run without the waiting.
func (s *system) launch(service, name string, env ...string) *instance {
	s.Helper()
	in, err := s.spawn(service, name, env...)
	if err != nil {
		s.Fatal(err)
	}
	return in
}

// spawn is launch for any goroutine.
func (s *system) spawn(service, name string, env ...string) (*instance, error) {
	addr := freeAddr(s)
	cmd := exec.Command(filepath.Join(bin, service))
	cmd.Env = append([]string{
		"HTTP_ADDR=" + addr,
		"CONSUMER_NAME=" + name,
		"CLAIM_IDLE=1s",
		"REDIS_URL=redis://" + service + ":" + service + "@" + s.redis.Addr(),
		"DATABASE_URL=" + s.postgres.DatabaseURL(dbName, service, service), // for those that want one
		"SMTP_URL=" + s.mail.URL(),
	}, env...)
	log := &logBuffer{}
	p, err := localserver.StartProcess(cmd, log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	in := &instance{p, service, name, "http://" + addr, log, time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = append(s.instances, in)
	return in, nil
}

func freeAddr(t testing.TB) string {
	port, err := localserver.FreePort()
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// stopAll ends what still runs; on a failure it shows the logs.
func (s *system) stopAll() {
	for _, in := range s.instances {
		_ = in.Signal(syscall.SIGCONT)
		_ = in.Signal(syscall.SIGTERM)
	}
	for _, in := range s.instances {
		if !in.Wait(20 * time.Second) {
			_ = in.Signal(syscall.SIGKILL)
		}
		s.wantDiscreet(in)
		if s.Failed() && !s.quiet {
			s.Logf("log of %s %s:\n%s", in.service, in.name, in.log)
		}
	}
}

// wantDiscreet: no process writes a customer's address, a password or a token into its log, whatever befalls it.
func (s *system) wantDiscreet(in *instance) {
	for line := range strings.Lines(in.log.String()) {
		if secret := indiscreet.FindString(line); secret != "" {
			s.Errorf("%s %s has %q in its log: %s", in.service, in.name, secret, line)
			return
		}
	}
}

// indiscreet finds an address that is not masked (c***@example.com), the password in a URL, and the token.
var indiscreet = regexp.MustCompile(`[^*\s"]@example\.com|//\w+:\w+@|` + apiToken)

// kill ends a process as kill -9 does, and waits for its end.
func (s *system) kill(in *instance) {
	s.Helper()
	if err := in.Signal(syscall.SIGKILL); err != nil || !in.Wait(10*time.Second) {
		s.Fatal("kill", in.service, err)
	}
}

// term stops a process with SIGTERM and wants exit code 0.
func (s *system) term(in *instance, within time.Duration) {
	s.Helper()
	if err := in.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if !in.Wait(within) {
		s.Fatalf("%s %s did not end within %s", in.service, in.name, within)
	}
	if code := in.State().ExitCode(); code != 0 {
		s.Errorf("%s %s ended with %d, want 0", in.service, in.name, code)
	}
}

func (in *instance) ready() bool { return in.status("/readyz") == http.StatusOK }

func (in *instance) status(path string) int {
	res, err := http.Get(in.url + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// logBuffer keeps what a process printed.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// has reports whether a line has all the texts.
func (l *logBuffer) has(texts ...string) bool {
next:
	for line := range strings.Lines(l.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		return true
	}
	return false
}
