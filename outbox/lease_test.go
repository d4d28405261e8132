package outbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/outbox"
)

// Three replicas, each with writers of its own: every row goes out once.
func TestReplicasPublishEachRowOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const replicas, rounds, size = 3, 60, 3
	var wg sync.WaitGroup
	var want []string
	for i := range replicas {
		relay := w.startOn(t, w.connect(t, "orders", nil), outbox.RelayConfig{BatchSize: 7})
		ids := eventIDs(i*rounds*size, rounds*size)
		want = append(want, ids...)
		wg.Go(func() {
			for batch := range slices.Chunk(ids, size) {
				w.add(t, batch...)
				relay.Wake()
			}
		})
	}
	wg.Wait()
	w.waitPublished(t)
	got := w.entries(t)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d entries, want %d, each once", len(got), len(want))
	}
}

// With one writer, whose rows are committed in order, three replicas keep the order.
func TestReplicasKeepTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var relays []*outbox.Relay
	for range 3 {
		relays = append(relays, w.startOn(t, w.connect(t, "orders", nil), outbox.RelayConfig{BatchSize: 7}))
	}
	want := eventIDs(0, 300)
	for i, id := range want {
		w.add(t, id)
		relays[i%3].Wake()
	}
	w.wantEntries(t, want)
}

// While one replica is at work, another's row comes. Nobody sweeps: the word must reach the first.
func TestRefusedReplicaNotifies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start(t, never)
	second := w.startOn(t, w.connect(t, "orders", nil), never)
	w.waitTurn(t)
	waitUntil(t, "both listen", func() bool {
		var n int
		w.query(t, &n, `select count(*) from pg_stat_activity where datname = current_database() and query = 'listen outbox_relay'`)
		return n == 2
	})
	w.waitIdle(t)
	heard := w.listen(t)
	entered, leave := w.holdFirst()
	defer leave()
	w.add(t, "a")
	first.Wake()
	<-entered
	w.add(t, "b")
	second.Wake()
	calls := w.published()
	if err := heard(); err != nil {
		t.Fatalf("the second was not refused, or did not say so: %v", err)
	}
	if w.published() != calls {
		t.Error("two replicas published at once")
	}
	leave()
	w.wantEntries(t, []string{"a", "b"})
}

// A statement that waited for the lease's row has an old view of the outbox: it must not publish what was marked meanwhile.
func TestTakeAfterAnothersMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `insert into outbox_relay (name, holder, expires_at) values ('outbox', 'other', 'epoch')`)
	w.add(t, "a")
	tx, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	// What the other does when it marks its batch.
	for _, statement := range []string{
		`update outbox_relay set expires_at = clock_timestamp()`,
		`update outbox set published_at = clock_timestamp(), entry_id = '1-1'`,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.waitLocked(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitTurn(t)
	w.add(t, "b")
	relay.Wake()
	w.wantEntries(t, []string{"b"})
}

// A replica that was killed keeps the others waiting for its lease, and no longer.
func TestLeaseOfTheDeadEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var end time.Time
	w.query(t, &end, `
		insert into outbox_relay (name, holder, expires_at) values ('outbox', 'dead', clock_timestamp() + interval '1 second')
		returning expires_at`)
	w.add(t, "a")
	relay := w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	relay.Wake()
	w.wantEntries(t, []string{"a"})
	w.waitPublished(t)
	var waited bool
	if w.query(t, &waited, `select published_at >= $1 from outbox`, end); !waited {
		t.Error("the lease was taken from a live holder")
	}
}

// A replica that was frozen while it published has lost its lease to another. It marks nothing then: the other's
// broker may have lost what it published.
func TestFrozenReplicaMarksNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := w.holdFirst()
	defer leave()
	w.add(t, "a", "b")
	cfg := outbox.RelayConfig{Sweep: 50 * time.Millisecond, PublishTimeout: 30 * time.Second, LeaseTimeout: 31 * time.Second}
	frozen := w.start(t, cfg)
	<-entered
	// The clock is the database's, so the lease can be ended there.
	w.exec(t, `update outbox_relay set expires_at = clock_timestamp()`)
	other := w.startOn(t, w.connect(t, "orders", nil), cfg)
	w.waitPublished(t)
	w.exec(t, `update outbox_relay set holder = 'third', expires_at = clock_timestamp() + interval '1 hour'`)
	w.exec(t, `update outbox set published_at = null, entry_id = null where event_id = 'b'`)
	leave()
	waitUntil(t, "the frozen one has come back", func() bool { return w.log.String() != "" })
	var waiting string
	if w.query(t, &waiting, `select event_id from outbox where published_at is null`); waiting != "b" {
		t.Errorf("waiting = %q, want b", waiting)
	}
	if n := frozen.Stats().Published; n != 0 {
		t.Errorf("the frozen one counts %d published, want 0", n)
	}
	if n := other.Stats().Published; n != 2 {
		t.Errorf("the other counts %d published, want 2", n)
	}
	w.exec(t, `update outbox_relay set expires_at = clock_timestamp()`)
	w.waitPublished(t)
}

// A process that was frozen between asking for its rows and publishing them does not begin to publish.
func TestFrozenBeforePublishing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, "a")
	w.exec(t, `insert into outbox_relay (name, holder, expires_at) values ('outbox', 'nobody', 'epoch')`)
	late := make(chan bool, 1)
	w.hook(func(ctx context.Context, _ []broker.Event) error {
		select {
		case late <- ctx.Err() != nil:
		default:
		}
		return nil
	})
	// With its row locked, taking the lease lasts longer than the lease.
	tx, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select from outbox_relay for update`); err != nil {
		t.Fatal(err)
	}
	w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond, PublishTimeout: time.Second, LeaseTimeout: 1100 * time.Millisecond})
	w.waitLocked(t)
	w.exec(t, `select pg_sleep(1.2)`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !<-late {
		t.Error("it published after its lease")
	}
	w.wantEntries(t, []string{"a"})
}

// The relay that had the lease is dead, and the database's clock was set back since: nobody waits for that end.
func TestLeaseOfTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `insert into outbox_relay (name, holder, expires_at) values ('outbox', 'dead', clock_timestamp() + interval '1 hour')`)
	w.add(t, "a")
	w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.wantEntries(t, []string{"a"})
}

// The connection for LISTEN is made as those of the pool are.
func TestListenCallsBeforeConnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := w.connect(t, "orders", func(c *pgxpool.Config) {
		right := c.ConnConfig.Database
		c.ConnConfig.Database = "nowhere"
		c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			conn.Database = right
			return nil
		}
	})
	w.startOn(t, pool, never)
	waitUntil(t, "it listens", func() bool {
		var n int
		w.query(t, &n, `select count(*) from pg_stat_activity where datname = current_database() and query = 'listen outbox_relay'`)
		return n == 1
	})
}
