package redisstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

func permanently(context.Context, *broker.Delivery) error {
	return broker.Permanent(context.Canceled)
}

// TestDeadLetterThatCannotBeWritten: the entry stays pending, its handler is not run again, and it arrives once there is
// room.
func TestDeadLetterThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, trouble := range map[string]struct{ make, mend func(w *world) }{
		"wrong type": {
			func(w *world) { w.client.Set(ctx, DeadKey(testStream, testGroup), "x", 0) },
			func(w *world) { w.client.Del(ctx, DeadKey(testStream, testGroup)) },
		},
		"full memory": {
			func(w *world) { w.client.ConfigSet(ctx, "maxmemory", "1") },
			func(w *world) { w.client.ConfigSet(ctx, "maxmemory", "0") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(1)
			var ran atomic.Int64
			started := make(chan struct{})
			cfg := w.config(func(ctx context.Context, d *broker.Delivery) error {
				if ran.Add(1) == 1 {
					trouble.make(w)
				}
				close(started)
				return permanently(ctx, d)
			})
			var dead atomic.Int64
			cfg.Observe = func(_ *broker.Delivery, o broker.Outcome, _ time.Duration) {
				if o == broker.Dead {
					dead.Add(1)
				}
			}
			w.start(cfg)
			<-started
			w.eventually("the burial has been tried again", func() bool { return w.client.Info(ctx, "errorstats").Err() == nil && w.errors() >= 3 })
			if w.pending() != 1 || dead.Load() != 0 {
				t.Errorf("%d pending, %d dead; want it pending", w.pending(), dead.Load())
			}
			trouble.mend(w)
			w.eventually("the dead letter is there", func() bool { return dead.Load() == 1 && w.settled() && w.deadLetters() == 1 })
			if ran.Load() != 1 {
				t.Errorf("the handler ran %d times, want once", ran.Load())
			}
		})
	}
}

// errors is how many errors the server has answered.
func (w *world) errors() (n int) {
	stats := w.client.Info(context.Background(), "stats").Val()
	for line := range strings.Lines(stats) {
		if v, ok := strings.CutPrefix(line, "total_error_replies:"); ok {
			for _, c := range strings.TrimSpace(v) {
				n = n*10 + int(c-'0')
			}
		}
	}
	return n
}

// TestGroupOrStreamGone: the group is made again at 0 and work goes on, without a restart.
func TestGroupOrStreamGone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, lose := range map[string]func(w *world){
		"DEL":           func(w *world) { w.client.Del(ctx, testStream) },
		"FLUSHALL":      func(w *world) { w.client.FlushAll(ctx) },
		"XGROUP":        func(w *world) { w.client.XGroupDestroy(ctx, testStream, testGroup) },
		"DEL then XADD": func(w *world) { w.client.Del(ctx, testStream); w.add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(5)
			var n atomic.Int64
			w.start(w.config(func(context.Context, *broker.Delivery) error { n.Add(1); return nil }))
			w.eventually("the first five are done", func() bool { return n.Load() == 5 && w.settled() })
			lose(w)
			w.eventually("the group is there again", func() bool { return w.pending() >= 0 })
			before := n.Load()
			w.add(3)
			w.eventually("new entries are done", func() bool { return n.Load() >= before+3 && w.settled() })
		})
	}
}

// TestAckOfALostGroupIsDropped: an entry with the same id in the new stream is another one, and must not be
// acknowledged by work on the old.
func TestAckOfALostGroupIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	add := func(event string) {
		if err := w.client.Do(ctx, "XADD", testStream, "5-1", "id", event, "type", "t", "data", "{}").Err(); err != nil {
			t.Fatal(err)
		}
	}
	add("old")
	started, finish := make(chan struct{}), make(chan struct{})
	newRuns := make(chan struct{}, 10)
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "old" {
			close(started)
			<-finish
		} else {
			newRuns <- struct{}{}
		}
		return nil
	})
	w.start(cfg)
	<-started
	w.client.Del(ctx, testStream)
	w.eventually("the group is made again", func() bool { return w.pending() == 0 })
	close(finish)
	add("new")
	<-newRuns
	w.eventually("all is done", w.settled)
}

// TestRedisRestart: nothing is lost or stuck, work goes on within three seconds, and the log stays calm.
func TestRedisRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var out safeBuffer
	var r runs
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	cfg.Handle = func(_ context.Context, d *broker.Delivery) error { r.add(d.ID); return nil }
	cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.start(cfg)
	w.add(10)
	w.eventually("the first are done", func() bool { return r.events() == 10 })
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	sleep(context.Background(), 2500*time.Millisecond) // the outage
	if n := out.lines(); n > 20 {
		t.Errorf("%d log lines in an outage of 2.5 s:\n%s", n, out.String())
	}
	if err := w.server.Restart(); err != nil {
		t.Fatal(err)
	}
	w.add(20)
	w.eventually("the next are done", func() bool { return r.events() == 30 })
}

// TestReadOnlyServer: a server that became a replica refuses everything but PING; work goes on when it is a master again.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	var r runs
	var dead atomic.Int64
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error { r.add(d.ID); return nil })
	cfg.Observe = func(_ *broker.Delivery, o broker.Outcome, _ time.Duration) {
		if o == broker.Dead {
			dead.Add(1)
		}
	}
	w.start(cfg)
	w.add(10)
	w.eventually("the first are done", func() bool { return r.events() == 10 && w.settled() })
	if err := w.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the consumer has met it", func() bool { return w.errors() >= 3 })
	if err := w.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	w.add(20)
	w.eventually("the next are done", func() bool { return r.events() == 30 && w.settled() })
	if r.most() != 1 || dead.Load() != 0 {
		t.Errorf("an event ran %d times, %d dead letters; want once and none", r.most(), dead.Load())
	}
}

// TestWrongTypeIsCalm: errors that come at once are met with growing waits.
func TestWrongTypeIsCalm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	w.client.Set(ctx, testStream, "x", 0)
	var n atomic.Int64
	w.start(w.config(func(context.Context, *broker.Delivery) error { n.Add(1); return nil }))
	sleep(ctx, time.Second)
	if e := w.errors(); e > 60 {
		t.Errorf("%d errors within a second", e)
	}
	w.client.Del(ctx, testStream)
	w.add(1)
	w.eventually("it is done", func() bool { return n.Load() == 1 })
}

// TestIdleConsumerIsQuiet: no errors and no more connections while there is nothing to read, and the drain does not wait
// for a blocked read.
func TestIdleConsumerIsQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var out safeBuffer
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	stop := w.start(cfg)
	w.eventually("it blocks", func() bool {
		return strings.Contains(w.client.ClientList(context.Background()).Val(), "cmd=xreadgroup")
	})
	sleep(context.Background(), 3*block)
	if n := w.clients("bonus:one"); n > 5 {
		t.Errorf("%d connections", n)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the drain took %s", took)
	}
	if out.lines() != 0 {
		t.Errorf("log of an idle consumer:\n%s", out.String())
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var down atomic.Bool
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if down.Load() {
			return broker.Unavailable(context.DeadlineExceeded)
		}
		return nil
	})
	c, err := NewConsumer(w.server.Options(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c.Check() == nil {
		t.Error("ready before it runs")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	w.eventually("ready", func() bool { return c.Check() == nil })
	down.Store(true)
	w.add(1)
	w.eventually("red while the dependency is down", func() bool {
		err := c.Check()
		return err != nil && strings.Contains(err.Error(), "dependency")
	})
	down.Store(false)
	w.eventually("green again by itself", func() bool { return c.Check() == nil && w.settled() })

	s := c.current.Load()
	s.unanswered.CompareAndSwap(0, uptime(time.Now()))
	later := time.Now().Add(silence + 2*time.Second)
	if err := s.check(later); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("got %v for a Redis that is silent, want so", err)
	}
	down.Store(true)
	w.add(1)
	w.eventually("red again", func() bool { return c.Check() != nil })
	w.client.FlushAll(context.Background()) // what met the outage is gone
	down.Store(false)
	w.eventually("green with nothing to try the dependency with", func() bool { return c.Check() == nil })
	wrong := errors.New("WRONGTYPE")
	s.readErr.Store(&wrong)
	s.unanswered.CompareAndSwap(0, uptime(time.Now()))
	if err := s.check(time.Now().Add(silence + 2*time.Second)); !errors.Is(err, wrong) {
		t.Errorf("got %v for a Redis that answers each read with an error, want that one", err)
	}
	putOff := newTable(&c.cfg)
	putOff.stalls()
	if err := putOff.check(time.Now().Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "put their work off") {
		t.Errorf("got %v for handlers that only put off, want so", err)
	}
	hang := newTable(&c.cfg)
	hang.add([]*entry{newEntry("1-1", pack("id", "a", "type", "t"))})
	if err := hang.check(time.Now().Add(time.Minute)); err == nil {
		t.Error("green with an entry that nobody runs")
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *safeBuffer) lines() int { return strings.Count(s.String(), "\n") }
