package redisstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/orderfanout/broker"
)

// TestRedrive: a dead letter goes back to its own group with fresh counts; other groups acknowledge it unseen; doing it
// twice does nothing.
func TestRedrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	var broken atomic.Bool
	broken.Store(true)
	var got atomic.Pointer[broker.Delivery]
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if broken.Load() {
			return errors.New("no")
		}
		copied := *d
		got.Store(&copied)
		return nil
	})
	cfg.MaxAttempts = 2
	w.start(cfg)
	var other runs
	cfg2 := w.config(func(_ context.Context, d *broker.Delivery) error { other.add(d.ID); return nil })
	cfg2.Group = "other"
	w.start(cfg2)
	w.add(1)
	w.eventually("it is dead", func() bool { return w.deadLetters() == 1 })
	if n := w.client.Exists(ctx, failKey(testStream, testGroup)).Val(); n != 0 {
		t.Error("the failures of a buried entry still stand in Redis")
	}
	dead := NewDeadLetters(w.client, testStream, testGroup)
	list, err := dead.List(ctx, "", 10)
	if err != nil || len(list) != 1 || list[0].Event.ID != "event-0" || list[0].Reason != deadAttempts || list[0].Attempts != 2 || list[0].At.IsZero() {
		t.Fatalf("list %+v, %v", list, err)
	}
	if slices.Contains(list[0].Fields, "dead_reason") || !slices.Contains(list[0].Fields, "event-0") {
		t.Errorf("fields %v, want the entry's own alone", list[0].Fields)
	}
	broken.Store(false)
	if _, err := dead.Redrive(ctx, list[0].ID); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is done", func() bool { return got.Load() != nil && w.settled() })
	if d := got.Load(); d.ID != "event-0" || d.Attempt != 1 || d.Delivery != 1 || d.OnlyGroup != testGroup {
		t.Errorf("delivery %+v, want the same event with fresh counts for this group alone", d)
	}
	if _, err := dead.Redrive(ctx, list[0].ID); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("second redrive: %v, want ErrNoDeadLetter", err)
	}
	w.eventually("the other group has passed it", func() bool {
		for _, g := range w.client.XInfoGroups(ctx, testStream).Val() {
			if g.Pending != 0 || g.Lag != 0 {
				return false
			}
		}
		return true
	})
	if other.most() != 1 {
		t.Error("the other group was given the redriven entry")
	}
	if n := w.deadLetters(); n != 0 {
		t.Errorf("%d dead letters left", n)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	w.start(w.config(permanently))
	w.add(2)
	w.eventually("both are dead", func() bool { return w.deadLetters() == 2 })
	dead := NewDeadLetters(w.client, testStream, testGroup)
	list, err := dead.List(ctx, "", 1)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	rest, err := dead.List(ctx, list[0].ID, 10)
	if err != nil || len(rest) != 1 || rest[0].ID == list[0].ID {
		t.Fatal(rest, err)
	}
	if err := dead.Discard(ctx, list[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := dead.Discard(ctx, list[0].ID); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("second discard: %v, want ErrNoDeadLetter", err)
	}
	if _, err := dead.Get(ctx, list[0].ID); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("get: %v, want ErrNoDeadLetter", err)
	}
	for _, id := range []string{"", "x", "1-", "1-x", "-", "1-2-3"} {
		_, get := dead.Get(ctx, id)
		_, redrive := dead.Redrive(ctx, id)
		for _, err := range []error{get, redrive, dead.Discard(ctx, id)} {
			if !errors.Is(err, ErrNoDeadLetter) {
				t.Errorf("%q: %v, want ErrNoDeadLetter", id, err)
			}
		}
	}
	if _, err := dead.List(ctx, "x", 1); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("list after x: %v, want ErrNoDeadLetter", err)
	}
	if _, err := dead.List(ctx, "", 0); err == nil || !strings.Contains(err.Error(), "count 0") {
		t.Errorf("list of 0: %v, want an error that says so", err)
	}
}

// TestHugeEntry: an entry with more fields than a script can pass on is no trap.
func TestHugeEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []any{"XADD", testStream, "*"}
	for range 5000 {
		args = append(args, "x", "y")
	}
	if err := w.client.Do(context.Background(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	w.start(w.config(func(context.Context, *broker.Delivery) error { return nil }))
	w.eventually("it is dead", func() bool { return w.deadLetters() == 1 && w.settled() })
}
