package redisstream

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// lens is how many entries a table has where.
type lens struct{ queue, solo, held, busy int }

func (t *table) lens() lens {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lens{t.queue.len(), t.solo.len(), len(t.held), t.busy}
}

// taken adds n entries of which a ghost is the owner at once, and returns their ids.
func (w *world) taken(n int) (ids []string) {
	w.Helper()
	ctx := context.Background()
	for range n {
		id, err := w.client.Do(ctx, "EVAL", `
			local id = redis.call('XADD', KEYS[1], '*', 'id', ARGV[2], 'type', 't', 'data', '{}')
			redis.call('XREADGROUP', 'GROUP', ARGV[1], 'ghost', 'COUNT', 1000, 'STREAMS', KEYS[1], '>')
			return id`, 1, testStream, testGroup, fmt.Sprint("suspect-", n)).Text()
		if err != nil {
			w.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestSuspectIsRetriedAlone: "from its third delivery on an entry is run alone" holds for its retries too.
func TestSuspectIsRetriedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	w.steal("ghost", 2, time.Hour, w.ghost("ghost", 1)...)
	var now, tries atomic.Int64
	var together atomic.Bool
	cfg := w.config(func(ctx context.Context, d *broker.Delivery) error {
		n := now.Add(1)
		defer now.Add(-1)
		if d.Delivery == 3 {
			if tries.Add(1) < 5 {
				return broker.Defer(20 * time.Millisecond)
			}
			sleep(ctx, 5*time.Millisecond)
			if n > 1 || now.Load() > 1 {
				together.Store(true)
			}
			return nil
		}
		sleep(ctx, time.Millisecond)
		return nil
	})
	cfg.Concurrency = 4
	w.start(cfg)
	w.eventually("the suspect is done", func() bool { w.add(20); return tries.Load() == 5 })
	w.eventually("all is done", w.settled)
	if together.Load() {
		t.Error("an entry on its third delivery ran beside others")
	}
}

// TestCheckAfterAQuietTime: a retry that comes due after a quiet time is no sign of a hang.
func TestCheckAfterAQuietTime(t *testing.T) {
	t.Parallel()
	cfg := Config{HandlerTimeout: 5 * time.Second, Concurrency: 1}
	tb := newTable(&cfg)
	e := newEntry("1-1", pack("id", "a", "type", "t"))
	tb.add([]*entry{e})
	tb.next()
	tb.wait(e, time.Minute)
	tb.mu.Lock()
	tb.busy = 0                               // that run has ended
	tb.lastRun = time.Now().Add(-time.Minute) // a minute ago
	e.due = e.due.Add(-time.Minute)
	tb.mu.Unlock()
	tb.wake(time.Now())
	if err := tb.check(time.Now()); err != nil {
		t.Errorf("red when a retry has just become due: %v", err)
	}
	tb.next()
	if err := tb.check(time.Now()); err != nil {
		t.Errorf("red when it has just begun: %v", err)
	}
}

// TestReadAheadBehindASlowEntry: what is given back must not make room for reading ever more.
func TestReadAheadBehindASlowEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(2000)
	var n atomic.Int64
	release := make(chan struct{})
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if n.Add(1) == 1000 {
			<-release
		}
		return nil
	})
	cfg.Concurrency, cfg.HandlerTimeout = 1, time.Minute
	stop := w.start(cfg)
	t.Cleanup(func() { close(release); stop() })
	w.eventually("it is at the slow one", func() bool { return n.Load() == 1000 })
	for range 10 {
		w.add(1000)
	}
	sleep(context.Background(), 5*time.Second)
	if p := w.pending(); p > 2*aheadMost {
		t.Errorf("%d entries pending behind one slow handler", p)
	}
	calls := w.client.Info(context.Background(), "commandstats").Val()
	for line := range strings.Lines(calls) {
		if strings.Contains(line, "xclaim") || strings.Contains(line, "xreadgroup") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// TestReadsAheadAFullBatchForEachWorker: both workers end at once, before the reader can read any more, and each finds a full batch.
func TestReadsAheadAFullBatchForEachWorker(t *testing.T) {
	t.Parallel()
	const batch, workers = 500, 2
	tbl := newTable(&Config{
		HandleBatch: func(context.Context, []*broker.Delivery) error { return nil },
		BatchSize:   batch, Concurrency: workers,
	})
	tbl.busy, tbl.cost, tbl.lastRun = workers, 25*time.Millisecond/batch, time.Now()
	id := 0
	for range 10 {
		for n := tbl.space(0); n > 0; n = tbl.space(0) {
			entries := make([]*entry, n)
			for i := range entries {
				id++
				entries[i] = &entry{}
				entries[i].EntryID = fmt.Sprint("1-", id)
			}
			tbl.add(entries)
		}
		if n := tbl.queue.len(); n > 2*batch*workers {
			t.Fatalf("%d entries are read ahead", n)
		}
		for range workers {
			picked := tbl.pick(time.Now())
			if len(picked) != batch {
				t.Fatalf("a worker found %d entries, want %d", len(picked), batch)
			}
			tbl.forget(picked...)
			tbl.lastRun = time.Now()
		}
	}
}

// TestWaitingEntriesKeepNoReply: an entry that waits must not keep the answer in memory that it came with.
func TestWaitingEntriesKeepNoReply(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	big := strings.Repeat("x", 20_000)
	for range 100 {
		pipe := w.client.Pipeline()
		for i := range 100 {
			id := "good"
			if i == 0 {
				id = "bad"
			}
			pipe.Do(ctx, "XADD", testStream, "*", "id", id, "type", "t", "data", big)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cfg := w.config(nil)
	cfg.BatchSize = 100
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
		for _, d := range ds {
			if d.ID == "bad" {
				d.Reject(broker.Defer(time.Hour))
			}
		}
		return nil
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, _ := w.running(cfg)
	w.eventually("a hundred wait, the others are done", func() bool { return w.pending() == 100 })
	w.eventually("nothing else is held", func() bool { return s.table.lens().held == 100 })
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	t.Logf("grown %d MB", (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
	t.Log(w.client.Info(ctx, "commandstats").Val())
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
		t.Errorf("%d MB for 100 waiting entries of 20 kB", grown>>20)
	}
}

// TestOutageOfTheOnlyQueuedEntry: an entry that always says Unavailable is the only one queued. While the outage lasts one entry
// may be queued "to probe with", and that one is the bad one: no other is ever asked for. (A reader that is quick enough gets one
// while the bad one runs; on a busy machine it is not. That is why brokertest's OutageOfOneEntryIsItsOwnFault fails now and then.)
func TestOutageOfTheOnlyQueuedEntry(t *testing.T) {
	t.Parallel()
	cfg := Config{HandlerTimeout: 5 * time.Second, Concurrency: 1}
	tb := newTable(&cfg)
	tb.add([]*entry{newEntry("1-1", pack("id", "bad", "type", "t"))})
	batch := tb.next()
	tb.unavailable(batch, errors.New("421 for this one alone"))
	tb.mu.Lock()
	tb.busy = 0 // that run has ended
	tb.mu.Unlock()
	if tb.roomNow() == 0 {
		t.Error("nothing is read while the one queued entry is the one that met the outage: no other can show that it is over")
	}
}

// TestStuckHandlerAndASuspect: a handler ignores its cancel, and an entry on its third delivery waits to run alone. All
// that is queued waits with it, renewed, so that no other consumer takes it either.
func TestStuckHandlerAndASuspect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	release := make(chan struct{})
	hangs := make(chan struct{})
	var good atomic.Int64
	handle := func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" {
			select {
			case <-hangs:
				return nil // the other consumer's run
			default:
			}
			close(hangs)
			<-release
			return nil
		}
		good.Add(1)
		return nil
	}
	cfg := w.config(handle)
	cfg.HandlerTimeout, cfg.Concurrency = 200*time.Millisecond, 4
	_, stop := w.running(cfg)
	t.Cleanup(func() { close(release); stop() })
	<-hangs
	w.steal("ghost", 2, time.Hour, w.taken(1)...)
	w.add(20)
	w.eventually("the 20 that have nothing to do with it are done, and the suspect", func() bool { return good.Load() == 21 })
}

// TestSuspectHangs: the entry that runs alone is the one that ignores its cancel.
func TestSuspectHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	w.steal("ghost", 2, time.Hour, w.ghost("ghost", 1)...)
	release, hangs := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	var good atomic.Int64
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" && first.CompareAndSwap(false, true) {
			close(hangs)
			<-release
		} else if d.ID != "event-0" {
			good.Add(1)
		}
		return nil
	})
	cfg.HandlerTimeout, cfg.Concurrency = 200*time.Millisecond, 4
	_, stop := w.running(cfg)
	t.Cleanup(func() { close(release); stop() })
	<-hangs
	w.add(20)
	w.eventually("the others are done", func() bool { return good.Load() == 20 })
}

// TestWakeUpAfterASuspectIsLost: the entry for which all workers waited is taken by another consumer; then all workers
// must go on with what is queued, not one or two.
func TestWakeUpAfterASuspectIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	var now, most atomic.Int64
	first, long := make(chan struct{}), make(chan struct{})
	end := make(chan struct{})
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" {
			close(first)
			<-long
			return nil
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-end
		return nil
	})
	cfg.Concurrency = 8
	cfg.HandlerTimeout = time.Minute
	cfg.RetryMin, cfg.RetryMax = time.Millisecond, time.Millisecond // no wariness
	s, _ := w.running(cfg)
	<-first
	ids := w.taken(1)
	w.steal("ghost", 2, time.Hour, ids...)
	w.eventually("the suspect waits to run alone", func() bool { return s.table.lens().solo == 1 })
	w.add(6)
	w.eventually("the six are queued behind it", func() bool { return s.table.lens().queue == 6 })
	w.steal("thief", 2, 0, ids...)
	w.eventually("the loss is known", func() bool { return s.table.lens().held == 7 })
	close(long)
	sleep(context.Background(), time.Second)
	got := most.Load()
	close(end)
	if got != 6 {
		t.Errorf("%d of 6 queued entries run at once with 8 workers", got)
	}
}

// TestRaceBeginAndRenewal: entries that were taken over wait in the queue until they are due for a renewal, and begin then.
// Run with -race.
func TestRaceBeginAndRenewal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1500)
	ids := w.ghost("one", 1500)
	for i := 0; i < 1500; i += 500 {
		w.steal("one", 1, time.Hour, ids[i:i+500]...)
	}
	var n atomic.Int64
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if n.Add(1)%3 == 0 {
			return errors.New("no")
		}
		return nil
	})
	cfg.ClaimIdle, cfg.MaxAttempts, cfg.Concurrency = 100*time.Millisecond, 100, 4
	w.start(cfg)
	w.eventually("all is done", w.settled)
}

// TestRaceRetryAndLoss: entries that fail again and again are taken away meanwhile.
func TestRaceRetryAndLoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(200)
	cfg := w.config(func(context.Context, *broker.Delivery) error { return errors.New("no") })
	cfg.ClaimIdle, cfg.MaxAttempts, cfg.RetryMin, cfg.RetryMax = 100*time.Millisecond, 1000, time.Millisecond, 2*time.Millisecond
	stop := w.start(cfg)
	for range 40 {
		for _, p := range w.client.XPendingExt(context.Background(), pendingArgs()).Val() {
			w.steal("thief", 1, 0, p.ID)
		}
		sleep(context.Background(), 20*time.Millisecond)
	}
	stop()
}
