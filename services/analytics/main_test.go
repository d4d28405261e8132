package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/internal/ops"
)

// TestMain is the tests or, where a test has started this binary with RUN_ANALYTICS, the real program: something to kill.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_ANALYTICS") != "" {
		ops.Main(run)
		return
	}
	servertest.Main(m)
}

// publish adds the events to the stream.
func publish(t testing.TB, opts *redis.Options, ds []*broker.Delivery) {
	t.Helper()
	p, err := redisstream.NewPublisher(opts, redisstream.PublisherConfig{Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for len(ds) > 0 {
		n := min(len(ds), 500)
		events := make([]broker.Event, n)
		for i, d := range ds[:n] {
			events[i] = d.Event
		}
		if _, err := p.Publish(context.Background(), events, broker.Position{}); err != nil {
			t.Fatal(err)
		}
		ds = ds[n:]
	}
}

// process is an analytics that runs as a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string // of its HTTP
	out  *output
}

func start(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), out: &output{}}
	p.cmd.Env = append([]string{"RUN_ANALYTICS=1", "CONSUMER_NAME=a1", "HTTP_ADDR=127.0.0.1:0", "CLAIM_IDLE=1s"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the process said:\n%.10000s", p.out)
		}
	})
	poll(t, "the address", func() bool { p.addr = p.out.addr(); return p.addr != "" })
	poll(t, "the service to be ready", func() bool { status, _ := p.get(t, "/readyz"); return status == http.StatusOK })
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	res, err := http.Get("http://" + p.addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
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

// addr returns where the service says that it listens.
func (o *output) addr() string {
	for line := range strings.SplitSeq(o.String(), "\n") {
		var fields struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &fields) == nil && fields.Msg == "listening" {
			return fields.Addr
		}
	}
	return ""
}

// poll waits until f is true.
func poll(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settled reports whether the group has nothing pending and nothing unread.
func (s *store) settled() bool {
	groups, err := s.client.XInfoGroups(context.Background(), "orders").Result()
	return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0
}

// The service is killed over and over while it works off a stream with repeats in it, and once between its script and its
// acknowledgement. The sums are those of each event once.
func TestKills(t *testing.T) {
	t.Parallel()
	s, m := newStore(t), newModel()
	url := "REDIS_URL=redis://" + s.client.Options().Addr
	r := rand.New(rand.NewPCG(7, 8))
	events := randomOrders(t, r, 3_000)
	for _, d := range events {
		m.add(t, d)
	}
	for range 300 {
		events = append(events, events[r.IntN(3_000)])
	}

	p := start(t, url, "ACK_DELAY=1h")
	publish(t, s.client.Options(), events[:100])
	poll(t, "the first sums", func() bool { return s.mustStats(t).Orders > 0 })
	p.kill()

	publish(t, s.client.Options(), events[100:])
	for goal := int64(500); goal < 3_000; goal += 500 {
		p := start(t, url, "BATCH_SIZE=20", "HANDLER_DELAY=2ms")
		poll(t, "some progress", func() bool { return s.mustStats(t).Orders > goal || s.settled() })
		p.kill()
	}
	p = start(t, url)
	poll(t, "the group to settle", s.settled)
	m.check(t, s)
	if n := s.client.XLen(t.Context(), redisstream.DeadKey("orders", "analytics")).Val(); n != 0 {
		t.Errorf("%d dead letters", n)
	}

	if status, body := p.get(t, "/stats?days=1"); status != http.StatusOK || !strings.HasPrefix(body, `{"orders":3000,"customers":40,"revenue":{"EUR":`) {
		t.Errorf("%d %s", status, body)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// Garbage and late events go to the dead letters, alone.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	start(t, "REDIS_URL=redis://"+s.client.Options().Addr)
	late := time.Now().Add(-testRetention - 48*time.Hour)
	garbage := placed(t, idAt(time.Now()), order("c", "EUR", "a", 1, 1, time.Now()))
	garbage.Data = []byte("{")
	publish(t, s.client.Options(), []*broker.Delivery{
		now(t, "c1", "EUR", "a", 1, 1), garbage, placed(t, idAt(late), order("c", "EUR", "a", 1, 1, late)), now(t, "c2", "EUR", "a", 1, 1),
	})
	poll(t, "the group to settle", s.settled)
	if got := s.mustStats(t); got.Orders != 2 {
		t.Errorf("statistics %+v", got)
	}
	dead, err := s.client.XRange(t.Context(), redisstream.DeadKey("orders", "analytics"), "-", "+").Result()
	if err != nil || len(dead) != 2 {
		t.Fatalf("dead letters %v, %v", dead, err)
	}
	if text := fmt.Sprint(dead[0].Values["dead_error"], dead[1].Values["dead_error"]); !strings.Contains(text, "decode order.placed.v1") || !strings.Contains(text, "PROCESSED_RETENTION") {
		t.Errorf("reasons %s", text)
	}
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	getenv := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	cfg, err := readConfig(getenv(map[string]string{"REDIS_URL": "redis://localhost:6379"}))
	if err != nil || cfg.HTTPAddr != ":8083" || cfg.Consumer.Group != "analytics" || cfg.Retention.Processed != testRetention {
		t.Errorf("defaults: %+v, %v", cfg, err)
	}
	err = run(t.Context(), getenv(map[string]string{"REDIS_URL": "redis://secret@h/x", "BATCH_SIZE": "many", "PROCESSED_RETENTION": "8d"}), io.Discard)
	for _, name := range []string{"REDIS_URL", "BATCH_SIZE", "PROCESSED_RETENTION"} {
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
}
