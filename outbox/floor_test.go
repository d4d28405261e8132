package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/outbox"
)

// A row that is committed when thousands of later ones have gone out is found all the same, while more come.
func TestVeryLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, outbox.RelayConfig{Sweep: 500 * time.Millisecond})
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Add(t.Context(), tx, newEvent("slow")); err != nil {
		t.Fatal(err)
	}
	const early = 3000
	w.exec(t, insertRows, "e", early, time.Duration(0), false)
	relay.Wake()
	w.waitMarked(t, early)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	waitUntil(t, "the late row is published", func() bool {
		w.add(t, fmt.Sprint("more", n))
		n++
		relay.Wake() // so that no sweep comes
		var published bool
		w.query(t, &published, `select published_at is not null from outbox where event_id = 'slow'`)
		return published
	})
}

// Where the table was emptied and its ids begin again, rows are found as before.
func TestIDsBeginAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, never)
	w.exec(t, insertRows, "e", 1000, time.Duration(0), false)
	relay.Wake()
	w.waitPublished(t)
	w.exec(t, `truncate outbox restart identity`)
	w.add(t, "first")
	waitUntil(t, "it is published", func() bool {
		relay.Wake()
		return relay.Stats().Published == 1001
	})
}

// What was published is not visited again by each look, though somebody's transaction keeps it from being cleaned away.
func TestPublishedRowsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(t.Context()) }()
	if _, err := old.Exec(t.Context(), `set transaction isolation level repeatable read`); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec(t.Context(), `select count(*) from outbox`); err != nil { // its snapshot
		t.Fatal(err)
	}
	const published, events = 20_000, 50
	w.exec(t, insertRows, "e", published, time.Duration(0), false)
	reads := w.readsOf(t, func(relay *outbox.Relay) {
		relay.Wake()
		waitUntil(t, "all is published", func() bool { return relay.Stats().Published == published })
	})
	// Each batch is read, and what is late at most is passed over; a few looks are at all.
	if most := int64(3 * published); reads > most {
		t.Errorf("%d rows were published with %d reads, want %d at most", published, reads, most)
	}
	reads = w.readsOf(t, func(relay *outbox.Relay) {
		for i := range events {
			w.add(t, fmt.Sprint("quiet", i))
			relay.Wake()
			waitUntil(t, "it is published", func() bool { return relay.Stats().Published == int64(i+1) })
		}
	})
	// One look reads all, the others what is late at most; a look for each event would be a million.
	if most := int64(published + events*3*(outbox.LateIDs+events) + published); reads > most {
		t.Errorf("%d quiet events took %d reads of what had been published, want %d at most", events, reads, most)
	}
}

// readsOf counts the entries that a relay reads from the index of what waits while f runs.
func (w *world) readsOf(t *testing.T, f func(*outbox.Relay)) int64 {
	t.Helper()
	count := func() (n int64) {
		w.query(t, &n, `select idx_tup_read from pg_stat_user_indexes where indexrelname = 'outbox_waiting_by_id'`)
		return n
	}
	pool := w.connect(t, "orders", func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = "counted" })
	relay, end := w.run(t, pool, never)
	before := count()
	f(relay)
	<-end()
	pool.Close() // a connection that ends says what it has counted
	waitUntil(t, "its connections have ended", func() (ended bool) {
		w.query(t, &ended, `select not exists (select from pg_stat_activity where application_name = 'counted' and datname = current_database())`)
		return ended
	})
	return count() - before
}

// A relay that stands by while another has the lease does not look at what waits.
func TestStandbyDoesNotLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, insertRows, "e", 1000, time.Duration(0), false)
	w.exec(t, `insert into outbox_relay (name, holder, expires_at) values ('outbox', 'another', clock_timestamp() + interval '29 seconds')`)
	reads := w.readsOf(t, func(relay *outbox.Relay) {
		waitUntil(t, "it had a turn", func() bool { return relay.Check() == nil })
	})
	if reads != 0 || w.published() != 0 {
		t.Errorf("it read %d rows and published %d times", reads, w.published())
	}
}
