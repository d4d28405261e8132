package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/outbox"
)

var errTooLarge = errors.New("too large")

// refuse makes the broker refuse what contains one of the events.
func (w *world) refuse(bad func(id string) bool) {
	w.hook(func(_ context.Context, events []broker.Event) error {
		if slices.ContainsFunc(events, func(e broker.Event) bool { return bad(e.ID) }) {
			return errTooLarge
		}
		return nil
	})
}

// A row that the broker refuses holds up none of its neighbours, and goes out once the broker takes it.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := []string{"e000000", "e000001", "e000049"}
	w.refuse(func(id string) bool { return slices.Contains(bad, id) })
	w.add(t, eventIDs(0, 50)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.wantEntries(t, eventIDs(2, 47))
	waitUntil(t, "the rows are parked", func() bool { return relay.Stats().Parked == 3 })
	w.add(t, eventIDs(50, 10)...)
	relay.Wake()
	w.wantEntries(t, slices.Concat(eventIDs(2, 47), eventIDs(50, 10)))
	for _, id := range bad {
		if n := strings.Count(w.log.String(), "event_id="+id); n != 1 {
			t.Errorf("%s stands in the log %d times, want once", id, n)
		}
	}
	if err := relay.CheckBroker(); err != nil {
		t.Errorf("CheckBroker = %v, want nil: it takes the others", err)
	}
	waitUntil(t, "three rows wait", func() bool {
		b, err := outbox.Waiting(t.Context(), w.pool)
		return err == nil && b.Rows == 3
	})
	w.hook(nil)
	w.wantEntries(t, slices.Concat(eventIDs(2, 47), eventIDs(50, 10), bad))
	waitUntil(t, "no row is parked", func() bool { return relay.Stats().Parked == 0 })
}

// In a backlog a refused row is tried with its batch, by itself and once more, and not again with each batch that follows.
func TestRefusedRowInABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	w.refuse(func(id string) bool {
		if id != "e000005" {
			return false
		}
		tries.Add(1)
		return true
	})
	w.add(t, eventIDs(0, 100)...)
	w.start(t, outbox.RelayConfig{BatchSize: 10, Sweep: time.Hour})
	w.wantEntries(t, slices.Concat(eventIDs(0, 5), eventIDs(6, 94)))
	if n := tries.Load(); n > 6 { // 3, and as many where the rest takes longer than a row is set aside
		t.Errorf("it was tried %d times, want 3", n)
	}
}

// More bad rows in front than are tried at a time: the good one behind them is found all the same.
func TestManyRefusedRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refuse(func(id string) bool { return id < "e000025" })
	w.add(t, eventIDs(0, 26)...)
	w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.wantEntries(t, eventIDs(25, 1))
}

// A broker that takes nothing, or nothing any more, is no reason to park rows.
func TestRefusedByAll(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]string{"from the start": "none", "after one": "e000000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusedByAllBut(t, passes)
		})
	}
}

func refusedByAllBut(t *testing.T, passes string) {
	w := newWorld(t)
	var singly, most atomic.Int32
	w.hook(func(_ context.Context, events []broker.Event) error {
		switch {
		case len(events) > 1:
			singly.Store(0)
		case len(events) == 1:
			if events[0].ID == passes {
				return nil
			}
			most.Store(max(most.Load(), singly.Add(1)))
		default:
			return nil
		}
		return errTooLarge
	})
	w.add(t, eventIDs(0, 30)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	waitUntil(t, "it has tried", func() bool { return w.published() > 120 })
	if n := most.Load(); n > 10 {
		t.Errorf("%d rows in a row were tried by themselves, want 10 at most", n)
	}
	w.wantNoneParked(t, relay)
	w.hook(nil)
	// A pass may have been half-way, so the order is not certain.
	if repeats := w.wantAll(t, eventIDs(0, 30)); repeats != 0 {
		t.Errorf("%d repeats", repeats)
	}
}

// The broker gets full while a batch goes out row by row. What is left of the batch comes before what was read meanwhile, and the row that was
// refused before is not set aside for it: nobody knows whether the broker would have taken it.
func TestFullWhileSingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var full, room atomic.Bool
	w.hook(func(_ context.Context, events []broker.Event) error {
		switch {
		case len(events) == 0 || room.Load():
			return nil
		case full.Load() && events[0].ID == "e000003":
			room.Store(true)
			return fmt.Errorf("%w: so says the test", broker.ErrFull)
		case events[0].ID == "e000100":
			full.Store(true)
			return fmt.Errorf("%w: so says the test", broker.ErrFull)
		case len(events) > 1 || events[0].ID == "e000003":
			return errTooLarge
		}
		return nil
	})
	w.add(t, eventIDs(0, 1200)...)
	relay := w.start(t, never)
	w.wantEntries(t, slices.Concat(eventIDs(0, 3), eventIDs(4, 96), eventIDs(3, 1), eventIDs(100, 1100)))
	w.wantNoneParked(t, relay)
}

// The lease ends while a batch goes out row by row: nothing is set aside for it.
func TestLeaseEndsWhileSingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var over atomic.Bool
	w.hook(func(ctx context.Context, events []broker.Event) error {
		switch {
		case len(events) == 0 || over.Load():
			return nil
		case len(events) > 1 || events[0].ID == "e000001":
			return errTooLarge
		case events[0].ID == "e000000":
			return nil
		}
		<-ctx.Done()
		over.Store(events[0].ID == "e000003") // the second wait is the shorter one: it ends with the lease
		return ctx.Err()
	})
	w.add(t, eventIDs(0, 10)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond, PublishTimeout: 700 * time.Millisecond, LeaseTimeout: time.Second})
	w.wantAll(t, eventIDs(0, 10))
	w.wantNoneParked(t, relay)
}

// A broker that does not answer in time is not asked row by row: that would take as long again for each.
func TestTimeoutBlamesNoRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var late atomic.Int32
	w.hook(func(_ context.Context, events []broker.Event) error {
		if len(events) > 0 && late.Add(1) <= 3 {
			if len(events) != 20 {
				t.Errorf("%d events by themselves", len(events))
			}
			return fmt.Errorf("so says the test: %w", context.DeadlineExceeded)
		}
		return nil
	})
	w.add(t, eventIDs(0, 20)...)
	relay := w.start(t, never)
	w.wantEntries(t, eventIDs(0, 20))
	w.wantNoneParked(t, relay)
}

// The broker goes away while a batch goes out row by row: no row is to blame.
func TestAwayWhileSingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var killed atomic.Bool
	w.hook(func(_ context.Context, events []broker.Event) error {
		switch {
		case killed.Load() || len(events) == 0:
			return nil
		case len(events) > 1:
			return errTooLarge
		case events[0].ID == "e000003":
			killed.Store(true)
			return w.redis.Kill()
		}
		return nil
	})
	w.add(t, eventIDs(0, 8)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond, RepublishWindow: time.Minute})
	waitUntil(t, "it is found away", func() bool { return killed.Load() && relay.CheckBroker() != nil })
	if err := w.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	w.wantAll(t, eventIDs(0, 8))
	w.waitPublished(t)
	w.wantNoneParked(t, relay)
}

// The broker loses what it has in the middle of a batch that goes out row by row: what this pass had published is repaired too.
func TestLossInTheMiddleOfAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var flushed atomic.Bool
	w.hook(func(ctx context.Context, events []broker.Event) error {
		if len(events) > 1 && !flushed.Load() {
			return errTooLarge
		}
		if len(events) == 1 && events[0].ID == "e000005" && !flushed.Swap(true) {
			return w.client.FlushAll(ctx).Err()
		}
		return nil
	})
	w.add(t, eventIDs(0, 10)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: time.Hour, RepublishWindow: time.Minute})
	w.wantEntries(t, slices.Concat(eventIDs(5, 5), eventIDs(0, 5)))
	w.waitPublished(t)
	w.wantNoneParked(t, relay)
}

// The broker has lost what it had, and that is found out while a batch goes out row by row.
func TestLossWhileSingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, eventIDs(0, 20)...)
	relay := w.start(t, outbox.RelayConfig{Sweep: time.Hour, RepublishWindow: time.Minute})
	w.waitPublished(t)
	w.waitIdle(t)
	w.hook(func(_ context.Context, events []broker.Event) error {
		if len(events) > 1 {
			return errTooLarge
		}
		return nil
	})
	if err := w.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.add(t, eventIDs(20, 5)...)
	relay.Wake()
	w.wantEntries(t, slices.Concat(eventIDs(20, 5), eventIDs(0, 20)))
	w.wantNoneParked(t, relay)
}

// wantNoneParked wants that no row is set aside, nor ever was.
func (w *world) wantNoneParked(t *testing.T, relay *outbox.Relay) {
	t.Helper()
	if n := relay.Stats().Parked; n != 0 {
		t.Errorf("%d rows are parked, want none", n)
	}
	if log := w.log.String(); strings.Contains(log, "refuses an event") {
		t.Error("a row was set aside")
	}
}

// Redis turns read-only and back: nothing is parked, all goes out.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.add(t, "before")
	relay.Wake()
	w.waitPublished(t)
	if err := w.client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	w.add(t, eventIDs(0, 30)...)
	relay.Wake()
	waitUntil(t, "the relay is refused", func() bool { return relay.CheckBroker() != nil })
	if err := w.client.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	w.wantAll(t, eventIDs(0, 30))
	w.waitPublished(t)
	if n := relay.Stats().Parked; n != 0 {
		t.Errorf("%d rows are parked, want none", n)
	}
}
