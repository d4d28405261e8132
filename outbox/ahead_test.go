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

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/outbox"
)

// hookNth calls f before the nth Publish with events, counted from 1.
func (w *world) hookNth(nth int, f func(context.Context) error) {
	w.hookEach(map[int]func(context.Context) error{nth: f})
}

func (w *world) hookEach(fs map[int]func(context.Context) error) {
	var n atomic.Int32
	w.hook(func(ctx context.Context, events []broker.Event) error {
		if len(events) == 0 {
			return nil
		}
		if f := fs[int(n.Add(1))]; f != nil {
			return f(ctx)
		}
		return nil
	})
}

// While the broker takes a batch, the one before is marked, and the lease stays, though no other row waits.
func TestMarksWhileTheBrokerWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	w.hookNth(2, func(context.Context) error { close(entered); <-leave; return nil })
	w.add(t, eventIDs(0, 20)...)
	w.start(t, outbox.RelayConfig{BatchSize: 10})
	<-entered
	w.waitMarked(t, 10)
	var held bool
	w.query(t, &held, `select expires_at > clock_timestamp() from outbox_relay`)
	if !held {
		t.Error("the lease was given up while a batch was on its way")
	}
	close(leave)
	w.wantEntries(t, eventIDs(0, 20))
	w.waitPublished(t)
}

// A batch that the broker does not take comes before those that were read meanwhile.
func TestRefusedBatchKeepsItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hookNth(2, func(context.Context) error { return fmt.Errorf("%w: so says the test", broker.ErrFull) })
	w.add(t, eventIDs(0, 50)...)
	w.start(t, outbox.RelayConfig{BatchSize: 10})
	w.wantEntries(t, eventIDs(0, 50))
	w.waitPublished(t)
}

// The broker loses all that it has while batch follows batch: what went out before goes out again, before the rest, also where
// the batch before could not be marked.
func TestLossUnderLoad(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		t.Run(fmt.Sprint("marked ", marked), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.hookEach(map[int]func(context.Context) error{
				2: func(context.Context) error {
					if !marked {
						w.waitMarked(t, 10)
						w.hideLease(t) // so the second will not be
					}
					return nil
				},
				3: func(ctx context.Context) error { return w.client.FlushAll(ctx).Err() },
			})
			w.add(t, eventIDs(0, 50)...)
			w.start(t, outbox.RelayConfig{BatchSize: 10, RepublishWindow: time.Minute})
			if !marked {
				w.showLease(t)
			}
			w.wantEntries(t, slices.Concat(eventIDs(20, 10), eventIDs(0, 20), eventIDs(30, 20)))
			w.waitPublished(t)
		})
	}
}

// waitMarked waits until n rows are marked.
func (w *world) waitMarked(t *testing.T, n int) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("%d rows are marked", n), func() bool {
		var marked int
		w.query(t, &marked, `select count(*) from outbox where published_at is not null`)
		return marked == n
	})
}

// hideLease lets every mark fail, until showLease, which waits for the first that does.
func (w *world) hideLease(t *testing.T) {
	if _, err := w.owner.Exec(context.Background(), `alter table outbox_relay rename to outbox_relay_away`); err != nil {
		t.Error(err)
	}
}

func (w *world) showLease(t *testing.T) {
	t.Helper()
	waitUntil(t, "the relay complains", func() bool { return strings.Contains(w.log.String(), "database failed") })
	w.exec(t, `alter table outbox_relay_away rename to outbox_relay`)
}

// The database refuses to mark while batch follows batch: nothing goes out twice.
func TestMarkFailsUnderLoad(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 3; nth++ { // while the nth batch is published, or before the one after
		t.Run(fmt.Sprint("batch ", nth), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.hookNth(nth, func(context.Context) error {
				w.waitMarked(t, 10*(nth-1))
				w.hideLease(t)
				return nil
			})
			w.add(t, eventIDs(0, 50)...)
			w.start(t, outbox.RelayConfig{BatchSize: 10})
			w.showLease(t)
			w.wantEntries(t, eventIDs(0, 50))
			w.waitPublished(t)
			w.waitIdle(t)
			if got := w.entries(t); len(got) != 50 {
				t.Errorf("%d entries in the end, want 50", len(got))
			}
		})
	}
}

// A relay that ends in the middle of a backlog leaves the lease to others at once, and nothing that it read to itself.
func TestEndsInABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second, leave := make(chan struct{}), make(chan struct{})
	w.hookNth(2, func(context.Context) error { close(second); <-leave; return nil })
	w.add(t, eventIDs(0, 50)...)
	_, end := w.run(t, w.pool, outbox.RelayConfig{BatchSize: 10})
	<-second
	ended := end()
	close(leave)
	<-ended
	w.wantEntries(t, eventIDs(0, 20))
	var marked int
	w.query(t, &marked, `select count(*) from outbox where published_at is not null`)
	if marked != 20 {
		t.Errorf("%d rows are marked, want 20", marked)
	}
	w.start(t, outbox.RelayConfig{BatchSize: 10})
	w.wantEntries(t, eventIDs(0, 50))
}

// Postgres is killed a moment after it was told that rows wait again, and while the relay publishes the first of them: it must not
// have forgotten the others.
func TestLossIsNotForgotten(t *testing.T) {
	t.Parallel()
	w, server := newWorldOfItsOwn(t)
	relay := w.start(t, outbox.RelayConfig{BatchSize: 10, RepublishWindow: time.Minute, Sweep: time.Hour})
	w.add(t, eventIDs(0, 60)...)
	relay.Wake()
	w.waitMarked(t, 60)
	w.waitIdle(t)
	w.exec(t, "checkpoint")
	w.hookNth(2, func(context.Context) error { return errors.Join(server.Kill(), server.Restart()) })
	if err := w.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.add(t, "after")
	relay.Wake()
	w.wantAll(t, append(eventIDs(0, 60), "after"))
}

// What was published long ago and is marked only now counts as published long ago: what went out just before it may be lost with it.
func TestLateMarkKeepsTheWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const window = time.Second
	w.hookNth(2, func(context.Context) error { w.hideLease(t); return nil })
	relay := w.start(t, outbox.RelayConfig{RepublishWindow: window, Sweep: time.Hour})
	w.add(t, "first")
	relay.Wake()
	w.waitMarked(t, 1)
	w.add(t, "second")
	relay.Wake()
	w.wantEntries(t, []string{"first", "second"})
	time.Sleep(2 * window) // the database is away for longer than the window
	if err := w.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.showLease(t)
	w.waitPublished(t)
	w.add(t, "third")
	relay.Wake()
	w.wantAll(t, []string{"first", "second", "third"})
}

// A relay whose lease is taken over in the middle of a backlog publishes no more of what it has read.
func TestLostLeaseEndsABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hookNth(1, func(ctx context.Context) error {
		_, err := w.owner.Exec(ctx, `update outbox_relay set holder = 'another', expires_at = clock_timestamp() + interval '1 second'`)
		return err
	})
	w.add(t, eventIDs(0, 50)...)
	w.start(t, outbox.RelayConfig{BatchSize: 10})
	w.waitPublished(t) // by the same relay, once the other's lease has ended
	if n := len(w.entries(t)); n > 20+50 {
		t.Errorf("%d entries for 50 events: more than the batch on its way and the one after went out without the lease", n)
	}
}

// One connection is enough: what is done at a time with two is done in turn.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, eventIDs(0, 50)...)
	pool := w.connect(t, "orders", func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	w.run(t, pool, outbox.RelayConfig{BatchSize: 10})
	w.wantEntries(t, eventIDs(0, 50))
	w.waitPublished(t)
}
