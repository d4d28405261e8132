package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/internal/ops"
)

// TestMain is the tests or, where a test has started this binary with RUN_MAILER, the real program: something to kill.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAILER") != "" {
		ops.Main(run)
		return
	}
	servertest.Main(m)
}

// system is a Redis with the stream, and a mail server.
type system struct {
	url    string
	client *redis.Client
	stub   *smtpStub
}

func startSystem(t *testing.T, stub *smtpStub) *system {
	t.Helper()
	server := servertest.Redis(t)
	client := redis.NewClient(server.Options())
	t.Cleanup(func() { client.Close() })
	return &system{url: server.URL(), client: client, stub: stub}
}

// place publishes n orders, for customers o0@example.test and so on.
func (s *system) place(t *testing.T, n int) {
	t.Helper()
	opts, err := redis.ParseURL(s.url)
	if err != nil {
		t.Fatal(err)
	}
	p, err := redisstream.NewPublisher(opts, redisstream.PublisherConfig{Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var events []broker.Event
	for i := range n {
		data, err := testOrder(fmt.Sprintf("o%d@example.test", i)).Encode()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, broker.Event{
			ID: fmt.Sprintf("0198a7c2-0000-7000-8000-%012d", i), Source: event.SourceOrders, Type: event.TypeOrderPlaced,
			Time: time.Now(), Subject: "o", DataContentType: event.ContentType, Data: data,
		})
	}
	if _, err := p.Publish(t.Context(), events, broker.Position{}); err != nil {
		t.Fatal(err)
	}
}

// settled waits until the group has nothing pending and nothing unread.
func (s *system) settled(t *testing.T) {
	t.Helper()
	poll(t, "the group to settle", func() bool {
		groups, err := s.client.XInfoGroups(t.Context(), "orders").Result()
		return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0
	})
}

// copies counts the mails by recipient.
func (s *system) copies() map[string]int {
	out := make(map[string]int)
	for _, m := range s.stub.received() {
		out[m.to]++
	}
	return out
}

// process is a mailer that runs as a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string // of its HTTP
	out  *output
}

// start runs a mailer and waits until it is ready.
func (s *system) start(t *testing.T, name string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), out: &output{}}
	p.cmd.Env = append([]string{
		"RUN_MAILER=1", "REDIS_URL=" + s.url, "SMTP_URL=" + s.stub.url(), "CONSUMER_NAME=" + name, "HTTP_ADDR=127.0.0.1:0",
		"CLAIM_IDLE=1s",
	}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.out)
		}
	})
	poll(t, "the mailer to be ready", func() bool {
		if p.addr == "" {
			p.addr, _ = p.out.find("listening")["addr"].(string)
		}
		if p.addr == "" {
			return false
		}
		res, err := http.Get("http://" + p.addr + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// output keeps what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// find returns the first log line with that msg, or outcome.
func (o *output) find(what string) map[string]any {
	for line := range strings.SplitSeq(o.String(), "\n") {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && (fields["msg"] == what || fields["outcome"] == what) {
			return fields
		}
	}
	return nil
}

func TestServiceSendsAndStops(t *testing.T) {
	t.Parallel()
	s := startSystem(t, startStub(t, nil))
	p := s.start(t, "m1")
	s.place(t, 20)
	s.settled(t)
	if got := s.copies(); len(got) != 20 || len(s.stub.received()) != 20 {
		t.Errorf("mails %v", got)
	}
	if strings.Contains(p.out.String(), "@example.test") {
		t.Errorf("an address is in the log:\n%s", p.out)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// A mailer is killed in the middle of a mail, before the server has all of it or before it has said so. The next one, under the same
// name or another, sends it without help.
func TestKillWhileSending(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step, name string
		copies     int
	}{
		{"RCPT", "m1", 1}, {"RCPT", "m2", 1},
		{".", "m1", 2}, // the honest one: the first was accepted, but nobody was told
	} {
		t.Run(tt.step+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			reached := make(chan struct{})
			var first atomic.Bool
			s := startSystem(t, startStub(t, func(s *smtpStub) {
				s.on = func(_ stubConn, verb, _ string) string {
					if verb == tt.step && first.CompareAndSwap(false, true) {
						close(reached)
						return hang
					}
					return ""
				}
			}))
			p := s.start(t, "m1")
			s.place(t, 1)
			<-reached
			p.kill()
			s.start(t, tt.name)
			s.settled(t)
			if got := s.copies()["<o0@example.test>"]; got != tt.copies {
				t.Errorf("%d mails, want %d", got, tt.copies)
			}
			ids := make(map[string]bool)
			for _, m := range s.stub.received() {
				header, _ := parts(t, m.content)
				ids[header.Get("Message-Id")] = true
			}
			if len(ids) != 1 {
				t.Errorf("Message-IDs %v", ids)
			}
		})
	}
}

// Killed between the marker and the acknowledgement, the mailer finds the mail sent.
func TestKillBeforeAck(t *testing.T) {
	t.Parallel()
	s := startSystem(t, startStub(t, nil))
	p := s.start(t, "m1", "ACK_DELAY=1h")
	s.place(t, 1)
	poll(t, "the marker", func() bool {
		return s.client.Get(t.Context(), markerKey("0198a7c2-0000-7000-8000-000000000000")).Val() == sent
	})
	p.kill()
	p = s.start(t, "m1")
	s.settled(t)
	if got := s.stub.received(); len(got) != 1 {
		t.Errorf("%d mails, want 1", len(got))
	}
	poll(t, "the outcome in the log", func() bool { return p.out.find("duplicate") != nil })
}

// The server takes three times the claim time for each mail, and there are two mailers that would claim: each mail is sent
// once, and they share the work.
func TestSlowServerTwoMailers(t *testing.T) {
	t.Parallel()
	s := startSystem(t, startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			if verb == "." {
				time.Sleep(3 * time.Second) // the fault itself, not a wait for something
			}
			return ""
		}
	}))
	s.start(t, "m1", "CONCURRENCY=5")
	s.start(t, "m2", "CONCURRENCY=5")
	begun := time.Now()
	s.place(t, 20)
	s.settled(t)
	got := s.copies()
	for to, n := range got {
		if n != 1 {
			t.Errorf("%d mails to %s", n, to)
		}
	}
	if len(got) != 20 {
		t.Errorf("%d recipients, want 20", len(got))
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// While the mail server is away or turns everybody away, nothing is counted and nothing is lost; a mail that it refuses for good
// goes to the dead letters with the reply, and alone.
func TestOutageAndRefusal(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	away.Store(true)
	s := startSystem(t, startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, line string) string {
			switch {
			case verb == "GREETING" && away.Load():
				return "421 4.3.2 not now"
			case verb == "RCPT" && strings.Contains(line, "<o3@"):
				return "550 5.1.1 <o3@example.test>: no such user"
			}
			return ""
		}
	}))
	s.start(t, "m1", "MAX_ATTEMPTS=1", "RETRY_MIN=10ms")
	s.place(t, 5)
	poll(t, "five refusals", func() bool { n, _ := s.stub.connections(); return n >= 5 })
	if n := s.client.XLen(t.Context(), redisstream.DeadKey("orders", "mailer")).Val(); n != 0 {
		t.Errorf("%d dead letters during the outage", n)
	}
	away.Store(false)
	s.settled(t)
	dead, err := s.client.XRange(t.Context(), redisstream.DeadKey("orders", "mailer"), "-", "+").Result()
	if err != nil || len(dead) != 1 {
		t.Fatalf("dead letters %v, %v", dead, err)
	}
	text, _ := dead[0].Values["dead_error"].(string)
	if !strings.Contains(text, "550 5.1.1") || strings.Contains(text, "o3@") {
		t.Errorf("dead_error is %q", text)
	}
	got := s.copies()
	var to []string
	for k := range got {
		to = append(to, k)
	}
	slices.Sort(to)
	if fmt.Sprint(to) != "[<o0@example.test> <o1@example.test> <o2@example.test> <o4@example.test>]" || len(s.stub.received()) != 4 {
		t.Errorf("mails %v", got)
	}
}

func TestBadSettingsStopTheStart(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), getenv(map[string]string{"SMTP_URL": "smtp://h?starttls=x"}), &output{})
	if err == nil || !strings.Contains(err.Error(), "REDIS_URL") || !strings.Contains(err.Error(), "SMTP_URL") {
		t.Errorf("got %v", err)
	}
}

// Only the two required settings, nobody there yet: the service starts, says that it is not ready, and ends when told.
func TestStartsBeforeTheOthers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := &output{}
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, getenv(map[string]string{
			"REDIS_URL": "redis://127.0.0.1:1", "SMTP_URL": "smtp://127.0.0.1:1", "HTTP_ADDR": "127.0.0.1:0",
		}), out)
	}()
	var addr string
	poll(t, "the address", func() bool { addr, _ = out.find("listening")["addr"].(string); return addr != "" })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200} {
		res, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s is %d, want %d", path, res.StatusCode, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
