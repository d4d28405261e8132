package redisstream

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// ghost has a consumer take n entries and vanish, and returns their entry ids.
func (w *world) ghost(name string, n int) []string {
	w.Helper()
	ctx := context.Background()
	_ = w.client.XGroupCreateMkStream(ctx, testStream, testGroup, "0").Err() // it may be there
	streams, err := w.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: testGroup, Consumer: name, Streams: []string{testStream, ">"}, Count: int64(n), Block: -1}).Result()
	if err != nil {
		w.Fatal(err)
	}
	var ids []string
	for _, m := range streams[0].Messages {
		ids = append(ids, m.ID)
	}
	if len(ids) != n {
		w.Fatalf("the ghost took %d entries, want %d", len(ids), n)
	}
	return ids
}

// steal makes another consumer the owner, with a count of deliveries and an idle time.
func (w *world) steal(by string, deliveries int, idle time.Duration, ids ...string) {
	w.Helper()
	args := []any{"XCLAIM", testStream, testGroup, by, 0}
	for _, id := range ids {
		args = append(args, id)
	}
	args = append(args, "IDLE", idle.Milliseconds(), "RETRYCOUNT", deliveries, "JUSTID")
	if err := w.client.Do(context.Background(), args...).Err(); err != nil {
		w.Fatal(err)
	}
}

// runs counts runs by event.
type runs struct {
	mu sync.Mutex
	n  map[string]int
}

func (r *runs) add(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = map[string]int{}
	}
	r.n[id]++
	return r.n[id]
}

func (r *runs) events() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.n)
}

func (r *runs) most() (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.n {
		most = max(most, n)
	}
	return most
}

func TestSecondConsumerOfANameTakesAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var r runs
	handle := func(_ context.Context, d *broker.Delivery) error { r.add(d.ID); return nil }
	w.start(w.config(handle))
	w.eventually("the first has the name", func() bool { return w.clients("bonus:one") > 0 })
	w.start(w.config(handle))
	w.eventually("the second works under another", func() bool { return w.clients("bonus:one~") > 0 })
	w.add(200)
	w.eventually("all is done", func() bool { return r.events() == 200 && w.settled() })
	if r.most() != 1 {
		t.Error("an event was run twice")
	}
}

// clients counts connections whose name starts so.
func (w *world) clients(prefix string) int {
	list, err := w.client.ClientList(context.Background()).Result()
	if err != nil {
		w.Fatal(err)
	}
	return strings.Count(list, " name="+prefix)
}

func TestNothingIsClaimedRightAfterTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	w.steal("ghost", 1, time.Hour, w.ghost("ghost", 1)...)
	ran := make(chan time.Time, 1)
	cfg := w.config(func(context.Context, *broker.Delivery) error { ran <- time.Now(); return nil })
	cfg.ClaimIdle = time.Second
	began := time.Now()
	w.start(cfg)
	if took := (<-ran).Sub(began); took < time.Second {
		t.Errorf("claimed %s after the start, want not before ClaimIdle", took)
	}
}

// TestEntriesAtTheFrontHideNoLaterOnes: a thousand entries of a dead consumer wait for their next try in an hour; those
// behind them are run.
func TestEntriesAtTheFrontHideNoLaterOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1010)
	ids := w.ghost("ghost", 1010)
	for part := range 2 {
		w.steal("ghost", 1, time.Hour, ids[part*505:(part+1)*505]...)
	}
	due := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for _, id := range ids[:1000] {
		if err := w.client.HSet(context.Background(), failKey(testStream, testGroup), id, "1:"+due).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var n atomic.Int64
	cfg := w.config(func(context.Context, *broker.Delivery) error { n.Add(1); return nil })
	cfg.Concurrency, cfg.RetryMax = 2, 2*time.Hour
	w.start(cfg)
	w.eventually("the ten behind are done, and the 1000 wait", func() bool { return n.Load() == 10 && w.pending() == 1000 })
}

// TestNextTryOfAClockThatWasAhead: no entry waits for longer than RetryMax, whatever stands in Redis.
func TestNextTryOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	ids := w.ghost("ghost", 1)
	due := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	if err := w.client.HSet(context.Background(), failKey(testStream, testGroup), ids[0], "1:"+due).Err(); err != nil {
		t.Fatal(err)
	}
	w.start(w.config(func(context.Context, *broker.Delivery) error { return nil }))
	w.eventually("it is done", w.settled)
}

// TestNextTryIsHonouredByWhoeverTakesOver: failures and next try stand in Redis.
func TestNextTryIsHonouredByWhoeverTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	failed := make(chan struct{})
	cfg := w.config(func(context.Context, *broker.Delivery) error { close(failed); return errors.New("no") })
	cfg.RetryMin, cfg.RetryMax = 3*time.Second, 3*time.Second // half at least remains
	stop := w.start(cfg)
	<-failed
	w.eventually("the failure is written down", func() bool {
		return w.client.HLen(context.Background(), failKey(testStream, testGroup)).Val() == 1
	})
	began := time.Now()
	stop()
	ran := make(chan *broker.Delivery, 1)
	cfg = w.config(func(_ context.Context, d *broker.Delivery) error { ran <- d; return nil })
	cfg.Name, cfg.RetryMax = "two", 3*time.Second
	w.start(cfg)
	d := <-ran
	if took := time.Since(began); took < time.Second {
		t.Errorf("run again after %s, want not before its next try", took)
	}
	if d.Attempt != 2 || d.Delivery != 1 {
		t.Errorf("attempt %d, delivery %d; want attempt 2, and delivery 1 since no worker was lost", d.Attempt, d.Delivery)
	}
	w.eventually("the hash is cleared with the ack", func() bool {
		return w.pending() == 0 && w.client.Exists(context.Background(), failKey(testStream, testGroup)).Val() == 0
	})
}

// TestSuspectRunsAlone: entries on which two workers were lost are kept out of batches and run with nothing beside them.
func TestSuspectRunsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(100)
	ids := w.ghost("ghost", 10)
	w.steal("ghost", 2, time.Hour, ids...)
	var now atomic.Int64
	var r runs
	cfg := w.config(nil)
	cfg.BatchSize, cfg.Concurrency = 10, 4
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
		n := now.Add(int64(len(ds)))
		defer now.Add(-int64(len(ds)))
		time.Sleep(time.Millisecond) // lets runs overlap
		for _, d := range ds {
			if d.Delivery == 3 && (len(ds) != 1 || n != 1 || now.Load() != 1) {
				t.Errorf("event %s on its third delivery ran with others: batch of %d, %d at once", d.ID, len(ds), n)
			}
			r.add(d.ID)
		}
		return nil
	}
	w.start(cfg)
	w.eventually("all is done", func() bool { return r.events() == 100 && w.settled() })
	if r.most() != 1 {
		t.Error("an event was run twice")
	}
}

// TestCrashLoopBlamesTheRightEntry: whoever runs event 3 is killed. It ends in the dead letters by its deliveries; the
// others finish, and none of them is delivered that often.
func TestCrashLoopBlamesTheRightEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(20)
	var good runs
	var worst atomic.Int64
	for life := 0; w.deadLetters() == 0 && life < 50; life++ {
		crash := make(chan struct{})
		var once sync.Once
		cfg := w.config(func(ctx context.Context, d *broker.Delivery) error {
			if d.ID == "event-3" {
				once.Do(func() { close(crash) })
				<-ctx.Done() // until the process is gone
				return ctx.Err()
			}
			select {
			case <-crash: // the process is dying: nothing is finished any more
				<-ctx.Done()
				return ctx.Err()
			default:
			}
			if good.add(d.ID) == 1 { // the next time it was done already: its acknowledgement died with the process
				worst.Store(max(worst.Load(), int64(d.Delivery)))
			}
			return nil
		})
		cfg.MaxDeliveries, cfg.Concurrency = 6, 4
		w.crashable(cfg, crash)
	}
	if n := w.deadLetters(); n != 1 {
		t.Fatalf("%d dead letters, want event 3", n)
	}
	w.eventually("the others are done", func() bool { return good.events() == 19 && w.pending() == 0 })
	if worst.Load() > 3 {
		t.Errorf("a healthy entry was delivered %d times", worst.Load())
	}
}

func (w *world) deadLetters() int64 {
	return w.client.XLen(context.Background(), DeadKey(testStream, testGroup)).Val()
}

// crashable runs a consumer until crash is closed or nothing is left to do. A crash takes its connections away at once, so
// that nothing of what it had reaches Redis any more.
func (w *world) crashable(cfg Config, crash <-chan struct{}) {
	w.Helper()
	way, opts := w.link()
	c, stop := w.behind(opts, cfg)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for settled := false; !settled; {
		select {
		case <-crash:
			_ = way.Close()
			c.current.Load().nameLost.Store(true) // no release, handlers are cancelled
			settled = true
		case <-tick.C:
			settled = w.settled()
		}
	}
	stop()
}

func TestBodyGoneWhilePending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(3)
	ids := w.ghost("ghost", 3)
	w.steal("ghost", 1, time.Hour, ids...)
	w.client.XDel(context.Background(), testStream, ids[1])
	var lost, done atomic.Int64
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	cfg.Observe = func(d *broker.Delivery, o broker.Outcome, _ time.Duration) {
		switch o {
		case broker.Lost:
			lost.Add(1)
			if d.EntryID != ids[1] {
				t.Errorf("lost %s, want %s", d.EntryID, ids[1])
			}
		case broker.Done:
			done.Add(1)
		}
	}
	w.start(cfg)
	w.eventually("two done, one lost, none pending", func() bool { return done.Load() == 2 && lost.Load() == 1 && w.pending() == 0 })
}

func TestBodyGoneWhileRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	var done atomic.Bool
	started, finish := make(chan string, 1), make(chan struct{})
	w.start(w.config(func(ctx context.Context, d *broker.Delivery) error {
		started <- d.EntryID
		select {
		case <-finish:
			done.Store(true)
			return nil
		case <-ctx.Done():
			t.Error("the handler was cancelled")
			return ctx.Err()
		}
	}))
	w.client.XDel(context.Background(), testStream, <-started)
	w.eventually("the renewal has met it", func() bool { return w.pending() == 0 })
	close(finish)
	w.eventually("the handler finished", done.Load)
}

func TestIdleConsumersAreRemovedUnlessTheyHoldSomething(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(3)
	ctx := context.Background()
	w.ghost("holds", 2)
	ids := w.ghost("empty", 1)
	w.client.XAck(ctx, testStream, testGroup, ids...)
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	cfg := w.config(func(context.Context, *broker.Delivery) error { <-block; return nil })
	cfg.ClaimIdle, cfg.ConsumerExpiry = time.Hour, 50*time.Millisecond // nothing is taken over here
	w.start(cfg)
	names := func() string {
		var names []string
		for _, c := range w.client.XInfoConsumers(ctx, testStream, testGroup).Val() {
			names = append(names, c.Name)
		}
		return strings.Join(names, " ")
	}
	w.eventually("the empty one is gone", func() bool { return !strings.Contains(names(), "empty") })
	if !strings.Contains(names(), "holds") || w.pending() < 2 {
		t.Errorf("consumers %q with %d pending: one that holds entries was removed", names(), w.pending())
	}
}

// TestOneGuiltyEntryHidesNoOthers: the only entry there is says "unavailable" whenever it runs; those that come later are
// read and done all the same, and it strikes out.
func TestOneGuiltyEntryHidesNoOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	met := make(chan struct{}, 1000)
	var n atomic.Int64
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-0" {
			met <- struct{}{}
			return broker.Unavailable(errors.New("no"))
		}
		n.Add(1)
		return nil
	})
	cfg.MaxAttempts = 1
	w.start(cfg)
	<-met
	<-met // it has been probed with
	for i := range 3 {
		w.add(1)
		w.eventually("the next is done", func() bool { return n.Load() == int64(i+1) })
	}
	w.eventually("the guilty one is dead", func() bool { return w.deadLetters() == 1 && w.settled() })
}
