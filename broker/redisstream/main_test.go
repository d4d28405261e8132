package redisstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/link"
	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const (
	testStream = "orders"
	testGroup  = "bonus"
)

// world is a Redis of the test's own and what the tests do with it.
type world struct {
	testing.TB
	server *localserver.Redis
	client *redis.Client
	added  int
}

func newWorld(t testing.TB, args ...string) *world {
	t.Helper()
	server := servertest.Redis(t, args...)
	client := redis.NewClient(server.Options())
	t.Cleanup(func() { _ = client.Close() })
	return &world{TB: t, server: server, client: client}
}

// add appends n new events and returns their ids.
func (w *world) add(n int) []string {
	w.Helper()
	ids := make([]string, n)
	pipe := w.client.Pipeline()
	for i := range ids {
		ev := w.event(w.added)
		w.added++
		ids[i] = ev.ID
		pipe.Do(context.Background(), xadd(testStream, &ev)...)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		w.Fatal(err)
	}
	return ids
}

func (w *world) event(i int) broker.Event {
	return broker.Event{
		ID: fmt.Sprintf("event-%d", i), Source: "/test", Type: "thing.done.v1", Time: time.Now(), Subject: fmt.Sprint(i),
		PartitionKey: "customer", DataContentType: "application/json", Data: fmt.Appendf(nil, `{"n":%d,"text":"%0200d"}`, i, i),
	}
}

// config is a Config with short times.
func (w *world) config(handle broker.Handler) Config {
	return Config{
		Stream: testStream, Group: testGroup, Name: "one", Handle: handle, ClaimIdle: 400 * time.Millisecond, HandlerTimeout: 5 * time.Second,
		RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// start runs a consumer and returns a function that drains it and waits for its end.
func (w *world) start(cfg Config) (stop func()) {
	w.Helper()
	_, stop = w.behind(w.server.Options(), cfg)
	return stop
}

// running starts a consumer and returns its session.
func (w *world) running(cfg Config) (s *session, stop func()) {
	w.Helper()
	c, stop := w.behind(w.server.Options(), cfg)
	w.eventually("the session is open", func() bool { s = c.current.Load(); return s != nil })
	return s, stop
}

// behind starts a consumer whose way to Redis is opts.
func (w *world) behind(opts *redis.Options, cfg Config) (c *Consumer, stop func()) {
	w.Helper()
	c, err := NewConsumer(opts, cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = c.Run(ctx); close(done) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.Cleanup(stop)
	return c, stop
}

// link puts a link between clients and the server. It returns it and the options of a client behind it.
func (w *world) link() (*link.Link, *redis.Options) {
	w.Helper()
	l, err := link.New(w.server.Addr())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close() })
	opts := w.server.Options()
	opts.Addr = l.Addr()
	return l, opts
}

// late returns the options of a client that waits for the answers to requests with the text, in any case: to all, or where once is
// given, to the next one after it was set.
func (w *world) late(text string, by time.Duration, once *atomic.Bool) *redis.Options {
	l, opts := w.link()
	l.Judge(func(request []byte) link.Fate {
		if bytes.Contains(bytes.ToLower(request), []byte(text)) && (once == nil || once.CompareAndSwap(true, false)) {
			return link.Fate{Late: by}
		}
		return link.Fate{}
	})
	return opts
}

// eventually waits until ok.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within 20s: %s", what)
		}
	}
}

// pending is how many entries the group has pending.
func (w *world) pending() int64 {
	p, err := w.client.XPending(context.Background(), testStream, testGroup).Result()
	if err != nil {
		return -1
	}
	return p.Count
}

// settled reports whether the group has read and acknowledged everything.
func (w *world) settled() bool {
	groups, err := w.client.XInfoGroups(context.Background(), testStream).Result()
	if err != nil {
		return false
	}
	for _, g := range groups {
		if g.Name == testGroup {
			return g.Pending == 0 && g.Lag == 0
		}
	}
	return false
}

func pendingArgs() *redis.XPendingExtArgs {
	return &redis.XPendingExtArgs{Stream: testStream, Group: testGroup, Start: "-", End: "+", Count: 100}
}
