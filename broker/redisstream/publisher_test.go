package redisstream

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

func (w *world) publisher(cfg PublisherConfig) *Publisher {
	w.Helper()
	cfg.Stream = testStream
	p, err := NewPublisher(w.server.Options(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.Close() })
	return p
}

// TestLossIsSeen: the receipt says that events may be lost where the server restarted or the stream went back.
func TestLossIsSeen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, test := range map[string]struct {
		happen func(w *world)
		lost   bool
	}{
		"nothing":  {func(*world) {}, false},
		"trimmed":  {func(w *world) { w.client.XTrimMaxLen(ctx, testStream, 0) }, false},
		"DEL":      {func(w *world) { w.client.Del(ctx, testStream) }, true},
		"FLUSHALL": {func(w *world) { w.client.FlushAll(ctx) }, true},
		"restart": {func(w *world) {
			if err := errors.Join(w.server.Kill(), w.server.Restart()); err != nil {
				w.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.publisher(PublisherConfig{})
			first, err := p.Publish(ctx, []broker.Event{w.event(0), w.event(1)}, broker.Position{})
			if err != nil {
				t.Fatal(err)
			}
			if first.Lost || len(first.EntryIDs) != 2 || first.Position.Server == "" || first.Position.Last != first.EntryIDs[1] {
				t.Fatalf("receipt %+v", first)
			}
			test.happen(w)
			w.eventually("asked", func() bool {
				asked, err := p.Publish(ctx, nil, first.Position)
				if err == nil && asked.Lost != test.lost {
					t.Errorf("asked without events: lost %t, want %t", asked.Lost, test.lost)
				}
				return err == nil
			})
			var second broker.Receipt
			w.eventually("published", func() bool {
				second, err = p.Publish(ctx, []broker.Event{w.event(2)}, first.Position)
				return err == nil
			})
			if second.Lost != test.lost {
				t.Errorf("lost %t, want %t", second.Lost, test.lost)
			}
			third, err := p.Publish(ctx, []broker.Event{w.event(3)}, second.Position)
			if err != nil || third.Lost {
				t.Errorf("then lost %t, %v; want it told once", third.Lost, err)
			}
		})
	}
}

// TestFull: at twice MaxLen, and at 80 % of maxmemory, nothing is appended.
func TestFull(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t)
	w.add(20)
	if _, err := w.publisher(PublisherConfig{MaxLen: 10}).Publish(ctx, []broker.Event{w.event(0)}, broker.Position{}); !errors.Is(err, broker.ErrFull) {
		t.Errorf("got %v at twice MaxLen, want ErrFull", err)
	}
	if _, err := w.publisher(PublisherConfig{MaxLen: math.MaxInt64}).Publish(ctx, []broker.Event{w.event(0)}, broker.Position{}); err != nil {
		t.Error(err)
	}
	w.client.ConfigSet(ctx, "maxmemory", "1mb")
	if _, err := w.publisher(PublisherConfig{}).Publish(ctx, []broker.Event{w.event(0)}, broker.Position{}); !errors.Is(err, broker.ErrFull) {
		t.Errorf("got %v with little memory, want ErrFull", err)
	}
	w.client.ConfigSet(ctx, "maxmemory", "0")
	if _, err := w.publisher(PublisherConfig{}).Publish(ctx, []broker.Event{w.event(0)}, broker.Position{}); err != nil {
		t.Error(err)
	}
	if n := w.length(); n != 22 {
		t.Errorf("%d entries, want 22", n)
	}
}

// TestWrongPassword: the error is what the server said, also of a publisher that has no connection yet.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--requirepass", "right")
	opts := w.server.Options()
	opts.Password = "wrong"
	p, err := NewPublisher(opts, PublisherConfig{Stream: testStream})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c, _ := w.behind(opts, w.config(func(context.Context, *broker.Delivery) error { return nil }))
	w.eventually("Check says why", func() bool { return strings.Contains(c.Check().Error(), "WRONGPASS") })
	for _, events := range [][]broker.Event{nil, {w.event(0)}} {
		_, err := p.Publish(context.Background(), events, broker.Position{})
		if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || !strings.HasPrefix(err.Error(), "publish ") {
			t.Errorf("Publish of %d events = %v, want WRONGPASS", len(events), err)
		}
	}
}

// TestPublisherLeavesADemotedServer: the address points to another server from now on, and the old one became a replica.
func TestPublisherLeavesADemotedServer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	old, promoted := newWorld(t), newWorld(t)
	l, opts := old.link()
	p, err := NewPublisher(opts, PublisherConfig{Stream: testStream})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if _, err := p.Publish(ctx, []broker.Event{old.event(0)}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	l.Target(promoted.server.Addr())
	if err := old.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	old.eventually("it publishes to the promoted server", func() bool {
		_, err := p.Publish(ctx, []broker.Event{old.event(1)}, broker.Position{})
		return err == nil
	})
	if n := promoted.length(); n != 1 {
		t.Errorf("%d entries at the promoted server, want 1", n)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	opts := &redis.Options{}
	for want, cfg := range map[string]PublisherConfig{"Stream is empty": {}, "MaxLen -1": {Stream: "s", MaxLen: -1}} {
		if _, err := NewPublisher(opts, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewPublisher = %v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(*Config){
		"HandlerTimeout": func(c *Config) { c.HandlerTimeout = math.MaxInt64 },
		"RetryMax":       func(c *Config) { c.RetryMax = math.MaxInt64 },
		"RetryMin":       func(c *Config) { c.RetryMin = -1 },
		"AckDelay":       func(c *Config) { c.AckDelay = -1 },
		"MaxAttempts":    func(c *Config) { c.MaxAttempts = math.MaxInt64 },
		"HandlerDelay":   func(c *Config) { c.HandlerDelay, c.HandlerTimeout = time.Second, time.Second },
	} {
		cfg := Config{Stream: "s", Group: "g", Handle: func(context.Context, *broker.Delivery) error { return nil }}
		change(&cfg)
		if _, err := NewConsumer(opts, cfg); err == nil || !strings.Contains(err.Error(), want+" ") {
			t.Errorf("NewConsumer = %v, want an error that names %s", err, want)
		}
	}
	const none = "the options are nil"
	if _, err := NewPublisher(nil, PublisherConfig{Stream: "s"}); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("NewPublisher = %v, want %q", err, none)
	}
	if _, err := NewConsumer(nil, Config{}); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("NewConsumer = %v, want %q", err, none)
	}
}

// TestRefusedBatchAppendsNothing: all or none.
func TestRefusedBatchAppendsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t)
	p := w.publisher(PublisherConfig{})
	if _, err := p.Publish(ctx, []broker.Event{w.event(0)}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	w.client.ConfigSet(ctx, "maxmemory", "1") // asked for room a moment ago: the server itself refuses
	if _, err := p.Publish(ctx, []broker.Event{w.event(1), w.event(2)}, broker.Position{}); err == nil {
		t.Error("published with full memory")
	}
	w.client.ConfigSet(ctx, "maxmemory", "0")
	if n := w.length(); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
}
