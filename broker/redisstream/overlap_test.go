package redisstream

import (
	"context"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// overlap notes which events ran twice at once.
type overlap struct {
	mu    sync.Mutex
	now   map[string]int
	total map[string]int
	twice []string
}

func (o *overlap) run(ctx context.Context, d *broker.Delivery, dur time.Duration) error {
	o.mu.Lock()
	if o.now == nil {
		o.now, o.total = map[string]int{}, map[string]int{}
	}
	o.now[d.ID]++
	o.total[d.ID]++
	if o.now[d.ID] > 1 {
		o.twice = append(o.twice, d.ID)
	}
	o.mu.Unlock()
	sleep(ctx, dur)
	o.mu.Lock()
	o.now[d.ID]--
	o.mu.Unlock()
	return ctx.Err()
}

func (o *overlap) report(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.twice) > 0 {
		t.Errorf("%d runs began while the same event was running: %v", len(o.twice), o.twice)
	}
}

// TestStallWithEntriesOfAllAges: Redis stands still for some ClaimIdles and answers nothing with an error, while entries are
// being read. The renewal that hangs meanwhile knows only of those that were due for it; when Redis goes on, the rest look idle.
func TestStallWithEntriesOfAllAges(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var o overlap
			for name, workers := range map[string]int{"busy": 20, "free": 200} {
				cfg := w.config(func(ctx context.Context, d *broker.Delivery) error { return o.run(ctx, d, 4*time.Second) })
				cfg.Name, cfg.Concurrency = name, workers
				w.start(cfg)
			}
			w.eventually("the group is there", func() bool { return w.pending() == 0 })
			sleep(context.Background(), 500*time.Millisecond) // both may claim
			for range 80 {
				w.add(1)
				sleep(context.Background(), 7*time.Millisecond)
			}
			if err := w.server.Pause(); err != nil {
				t.Fatal(err)
			}
			sleep(context.Background(), 1500*time.Millisecond)
			if err := w.server.Resume(); err != nil {
				t.Fatal(err)
			}
			w.eventually("all is done", w.settled)
			o.report(t)
		})
	}
}

// TestLateReadIsNotFresh: the answer to a read takes nine tenths of ClaimIdle. The entry has been this consumer's for that long when
// it arrives, and is renewed as if it were fresh.
func TestLateReadIsNotFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var o overlap
	cfg := w.config(func(ctx context.Context, d *broker.Delivery) error { return o.run(ctx, d, 3*time.Second) })
	cfg.ClaimIdle = 2 * time.Second
	w.behind(w.late("xreadgroup", 1800*time.Millisecond, nil), cfg)
	w.eventually("the group is there", func() bool { return w.pending() == 0 })
	w.add(1)
	w.eventually("one is read", func() bool { return w.pending() > 0 })
	cfg.Name = "two"
	two, _ := w.running(cfg)
	two.noClaim.Store(0) // as one that has been there for long
	w.eventually("all is done", w.settled)
	o.report(t)
}

// TestLateClaimTakesNothing: the claim reaches Redis later than it should, or Redis's clock was put forward: either way all
// that is pending looks idle, and its owners must get the time to renew it.
func TestLateClaimTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	c, err := NewConsumer(w.server.Options(), w.config(func(context.Context, *broker.Delivery) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s, err := c.open(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if err := s.makeGroup(ctx); err != nil {
		t.Fatal(err)
	}
	w.steal("ghost", 1, time.Hour, w.ghost("ghost", 1)...)
	claim := func() (held int) {
		s.noClaim.Store(0)
		if _, err := s.sweep(ctx, takeArgs{idle: s.cfg.ClaimIdle, start: "-"}); err != nil {
			t.Fatal(err)
		}
		return s.table.lens().held
	}
	s.clock.Store(&serverClock{time.Now().Add(-s.cfg.ClaimIdle).UnixMilli(), time.Now()})
	if n := claim(); n != 0 || s.noClaim.Load() == 0 {
		t.Errorf("%d taken though Redis is ClaimIdle ahead of what it should show; claims on hold: %v", n, s.noClaim.Load() != 0)
	}
	if n := claim(); n != 1 {
		t.Errorf("%d taken, want 1: its clock is known now", n)
	}
}
