package outbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/outbox"
)

const insertRows = `
	insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data,
	                    created_at, published_at, entry_id)
	select $1 || lpad((i - 1)::text, 6, '0'), '', 't', now() - $3::interval, '', '', '', '', '', '',
	       now() - $3::interval, case when $4 then now() - $3::interval end, case when $4 then '1-1' end
	from generate_series(1, $2::int) i`

// Published rows go when they are old, rows that wait never do, however old they are.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, insertRows, "old", 5500, 8*24*time.Hour, true)
	w.exec(t, insertRows, "e", 10, 8*24*time.Hour, false)
	w.exec(t, insertRows, "new", 20, 6*24*time.Hour, true)
	w.start(t, outbox.RelayConfig{})
	w.wantEntries(t, eventIDs(0, 10))
	waitUntil(t, "old rows are gone", func() bool {
		var n int
		w.query(t, &n, `select count(*) from outbox where event_id like 'old%'`)
		return n == 0
	})
	var left int
	if w.query(t, &left, `select count(*) from outbox`); left != 30 {
		t.Errorf("%d rows are left, want 30", left)
	}
}

// To look for old rows among many that are not must not read them all, minute for minute.
func TestDeleteReadsWhatIsOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, insertRows, "new", 20_000, time.Hour, true)
	w.exec(t, `analyze outbox`)
	plan := servertest.Plan(t, servertest.Connect(t, w.url), outbox.DeleteSQL, `86400, 1000`)
	if !strings.Contains(plan, "Index Cond: (published_at <") {
		t.Errorf("it reads all that is published:\n%s", plan)
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if b, err := outbox.Waiting(t.Context(), w.pool); err != nil || b != (outbox.Backlog{}) {
		t.Errorf("Waiting = %+v, %v; want nothing", b, err)
	}
	w.exec(t, insertRows, "e", outbox.BacklogLimit+5, time.Hour, false)
	b, err := outbox.Waiting(t.Context(), w.connect(t, "fanout", nil))
	if err != nil || b.Rows != outbox.BacklogLimit || b.Oldest < time.Hour || b.Oldest > time.Hour+10*time.Minute {
		t.Errorf("Waiting = %+v, %v; want %d rows for an hour", b, err, outbox.BacklogLimit)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, insertRows, "old", 700, 2*time.Hour, true)
	w.exec(t, insertRows, "e", 1200, time.Hour, true)
	w.exec(t, insertRows, "waiting", 10, time.Hour, false)
	operator := w.connect(t, "fanout", nil)
	var got []string
	err := outbox.Events(t.Context(), operator, time.Now().Add(-90*time.Minute), func(events []broker.Event) error {
		if len(events) > 500 {
			t.Errorf("a page of %d", len(events))
		}
		for _, e := range events {
			got = append(got, e.ID)
		}
		return nil
	})
	if err != nil || !slices.Equal(got, eventIDs(0, 1200)) {
		t.Errorf("%d events, %v; want the 1200 published ones in order", len(got), err)
	}
	err = outbox.Events(t.Context(), operator, time.Time{}, func([]broker.Event) error { return errTooLarge })
	if err != errTooLarge {
		t.Errorf("Events = %v, want page's own error", err)
	}
}
