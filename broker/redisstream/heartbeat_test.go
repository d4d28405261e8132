package redisstream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// TestLongHandlerRunsOnce: handlers take several times ClaimIdle; a second consumer stands by and takes none of them.
func TestLongHandlerRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(4)
	var r runs
	handle := func(ctx context.Context, d *broker.Delivery) error {
		r.add(d.ID)
		if !sleep(ctx, 1500*time.Millisecond) {
			t.Error("cancelled though nobody took it over")
		}
		return nil
	}
	cfg := w.config(handle)
	cfg.Concurrency = 2 // two of them are queued or at the other
	w.start(cfg)
	cfg.Name = "two"
	w.start(cfg)
	w.eventually("all is done", func() bool { return r.events() == 4 && w.settled() })
	if r.most() != 1 {
		t.Error("an event was run twice")
	}
}

// TestLossCancelsAndCountsNothing: another consumer owns the entry now. The handler is cancelled, and neither its
// failure nor a dead letter is written.
func TestLossCancelsAndCountsNothing(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]error{"failure": errors.New("no"), "permanent": broker.Permanent(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(1)
			started, cancelled := make(chan string, 1), make(chan error, 1)
			var lost atomic.Int64
			cfg := w.config(func(ctx context.Context, d *broker.Delivery) error {
				started <- d.EntryID
				<-ctx.Done()
				cancelled <- context.Cause(ctx)
				return verdict
			})
			cfg.Observe = func(_ *broker.Delivery, o broker.Outcome, _ time.Duration) {
				if o == broker.Lost {
					lost.Add(1)
				}
			}
			stop := w.start(cfg)
			w.steal("thief", 5, 0, <-started)
			if cause := <-cancelled; !errors.Is(cause, errLost) {
				t.Errorf("cause %v, want the loss", cause)
			}
			stop()
			ctx := context.Background()
			if n := w.client.Exists(ctx, failKey(testStream, testGroup), DeadKey(testStream, testGroup)).Val(); n != 0 {
				t.Error("a failure or dead letter was written by one who does not own the entry")
			}
			pending := w.client.XPendingExt(ctx, pendingArgs()).Val()
			if len(pending) != 1 || pending[0].Consumer != "thief" || pending[0].RetryCount != 5 || lost.Load() != 1 {
				t.Errorf("pending %+v, lost %d; want the thief's entry as it was, and one loss", pending, lost.Load())
			}
		})
	}
}

// TestFenceOfTheScripts: failure and dead letter are refused where the loss is not known yet.
func TestFenceOfTheScripts(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]error{"failure": errors.New("no"), "permanent": broker.Permanent(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(1)
			cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
				w.steal("thief", 1, 0, d.EntryID)
				return verdict
			})
			cfg.ClaimIdle = time.Minute // no renewal meets it in between
			lost := make(chan struct{})
			cfg.Observe = func(_ *broker.Delivery, o broker.Outcome, _ time.Duration) {
				if o == broker.Lost {
					close(lost)
				}
			}
			w.start(cfg)
			<-lost
			if n := w.client.Exists(context.Background(), failKey(testStream, testGroup), DeadKey(testStream, testGroup)).Val(); n != 0 {
				t.Error("written by one who does not own the entry")
			}
		})
	}
}

// TestDoneWorkIsAcknowledgedEvenWhenLost: the ack is not fenced.
func TestDoneWorkIsAcknowledgedEvenWhenLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	w.start(w.config(func(ctx context.Context, d *broker.Delivery) error {
		w.steal("thief", 1, 0, d.EntryID)
		<-ctx.Done()
		return nil // it had done the work all the same
	}))
	w.eventually("acknowledged", func() bool { return w.settled() })
}

// TestHandlerThatIgnoresItsCancelLosesItsEntry: another consumer gets it.
func TestHandlerThatIgnoresItsCancelLosesItsEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	release := make(chan struct{})
	started := make(chan struct{})
	cfg := w.config(func(context.Context, *broker.Delivery) error { close(started); <-release; return nil })
	cfg.HandlerTimeout = 100 * time.Millisecond
	stop := w.start(cfg)
	t.Cleanup(func() { stop() })
	t.Cleanup(func() { close(release) }) // runs before the stop above
	<-started
	taken := make(chan int, 1)
	cfg = w.config(func(_ context.Context, d *broker.Delivery) error { taken <- d.Delivery; return nil })
	cfg.Name = "two"
	w.start(cfg)
	if n := <-taken; n != 2 {
		t.Errorf("delivery %d, want 2", n)
	}
}

// TestHandlerThatIgnoresItsCancelHoldsNobodyUp: an entry that must run alone does not wait for it for ever.
func TestHandlerThatIgnoresItsCancelHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(2)
	w.steal("ghost", 2, 0, w.ghost("ghost", 1)...) // event 0 is suspect, and taken over a little later
	release := make(chan struct{})
	started, done := make(chan struct{}), make(chan struct{})
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" {
			close(done)
		} else {
			close(started)
			<-release
		}
		return nil
	})
	cfg.HandlerTimeout, cfg.Concurrency = 100*time.Millisecond, 2
	stop := w.start(cfg)
	t.Cleanup(func() { stop() })
	t.Cleanup(func() { close(release) }) // runs before the stop above
	<-started
	<-done
}

// TestQueuedEntriesAreAskedForBeforeALateStart: a consumer's renewals stop (its process stood still); what was queued there is
// another's when it goes on.
func TestQueuedEntriesAreAskedForBeforeALateStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session("one")
	w.add(2)
	if err := s.makeGroup(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.readNew(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	entries := s.table.queue.take()
	for _, e := range entries {
		e.renewed = e.renewed.Add(-time.Hour) // as after a long stop
	}
	w.steal("thief", 1, 0, entries[0].EntryID)
	if kept := s.begin(context.Background(), entries); len(kept) != 1 || kept[0] != entries[1] {
		t.Errorf("%d entries would start, want only the one that is still owned", len(kept))
	}
}

// session is an open session that does nothing by itself.
func (w *world) session(name string) *session {
	w.Helper()
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	c, err := NewConsumer(w.server.Options(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	s, err := c.open(context.Background(), name)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.close)
	return s
}

// TestStallOfRedisMovesNothing: after a stall everybody's entries look idle, and nobody claims from others.
func TestStallOfRedisMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(6)
	var r runs
	handle := func(ctx context.Context, d *broker.Delivery) error {
		r.add(d.ID)
		if !sleep(ctx, 4*time.Second) {
			return ctx.Err()
		}
		return nil
	}
	for _, name := range []string{"one", "two"} {
		cfg := w.config(handle)
		cfg.Name, cfg.Concurrency = name, 3
		w.start(cfg)
	}
	w.eventually("all are running", func() bool { return r.events() == 6 })
	if err := w.server.Pause(); err != nil {
		t.Fatal(err)
	}
	sleep(context.Background(), 1500*time.Millisecond) // the stall itself, several times ClaimIdle
	if err := w.server.Resume(); err != nil {
		t.Fatal(err)
	}
	w.eventually("all is done", w.settled)
	if r.most() != 1 {
		t.Error("an event was run twice, as if its owner had gone")
	}
}

// TestSlowEntryHoldsNobodyUp: entries read ahead behind one that turns out slow go to a free consumer.
func TestSlowEntryHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(2000) // quick ones, so that the consumer learns to read ahead
	var n atomic.Int64
	release := make(chan struct{})
	t.Cleanup(func() {
		select {
		case <-release:
		default:
			close(release)
		}
	})
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if n.Add(1) == 1500 {
			<-release // and this one is slow
		}
		return nil
	})
	cfg.Concurrency = 1
	w.start(cfg)
	w.eventually("it is stuck at the slow one", func() bool { return n.Load() == 1500 })
	cfg.Name = "two"
	w.start(cfg)
	w.eventually("the other one has done the rest", func() bool { return n.Load() == 2000 && w.pending() == 1 })
	close(release)
	w.eventually("all is done", w.settled)
}

// TestLossWhileHandedOut: an entry is lost to another consumer while a worker hands it out. Run with -race.
func TestLossWhileHandedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error { d.Duplicate(); return nil })
	cfg.Observe = func(d *broker.Delivery, _ broker.Outcome, _ time.Duration) { _ = d.IsDuplicate() }
	c, _ := NewConsumer(w.server.Options(), cfg)
	s, err := c.open(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	_ = s.makeGroup(ctx)
	w.add(1)
	if err := s.readNew(ctx, 1); err != nil {
		t.Fatal(err)
	}
	batch := s.table.next()
	done := make(chan struct{})
	go func() { s.lose(batch[0], "two"); close(done) }() // the heartbeat
	sleep(ctx, 100*time.Millisecond)
	_ = s.begin(ctx, batch) // the worker
	<-done
}

// TestDrainDoesNotHoldWhatWaits: one handler takes its time to end; what waits for its next try is another consumer's meanwhile.
func TestDrainDoesNotHoldWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(10)
	var done atomic.Int64
	finish := make(chan struct{})
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" {
			<-finish
			return nil
		}
		return errors.New("no")
	})
	cfg.RetryMin, cfg.RetryMax, cfg.HandlerTimeout = time.Second, time.Second, time.Minute
	stop := w.start(cfg)
	w.eventually("the others wait", func() bool {
		return w.client.HLen(context.Background(), failKey(testStream, testGroup)).Val() == 9
	})
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	cfg.Name, cfg.Handle = "two", func(context.Context, *broker.Delivery) error { done.Add(1); return nil }
	w.start(cfg)
	w.eventually("another has done them", func() bool { return done.Load() == 9 })
	close(finish)
	<-stopped
	w.eventually("all is done", w.settled)
}

// TestDrainInTheMiddleOfABacklog: while entries are decoded, more are on their way already. A consumer that is told to stop then
// gives those back too, so that another has them at once.
func TestDrainInTheMiddleOfABacklog(t *testing.T) {
	t.Parallel()
	for range 5 {
		w := newWorld(t)
		fill(w, 5_000)
		var n atomic.Int64
		enough := make(chan struct{})
		cfg := w.config(nil)
		cfg.ClaimIdle = time.Minute
		cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
			if had := n.Add(int64(len(ds))); had >= 2_000 && had-int64(len(ds)) < 2_000 {
				close(enough)
			}
			return nil
		}
		stop := w.start(cfg)
		<-enough
		stop()
		ctx := context.Background()
		pending := w.pending()
		free, err := w.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: testStream, Group: testGroup, Idle: cfg.ClaimIdle, Start: "-", End: "+", Count: 10_000}).Result()
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(free)) != pending {
			t.Errorf("%d of %d pending entries may be taken at once, want all", len(free), pending)
		}
	}
}
