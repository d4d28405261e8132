package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/outbox"
)

// Plans that were made for an outbox of few rows are right for a large one: what waits is found in the index of what waits, and a row
// that is marked by its id.
func TestPlansDoNotAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantPlans(t, "empty")
	w.exec(t, insertRows, "unknown", 2000, time.Hour, false)
	w.wantPlans(t, "never analyzed")
	w.exec(t, `delete from outbox`)
	w.exec(t, `vacuum analyze outbox`)
	w.wantPlans(t, "empty and analyzed")
	for _, rows := range []int{1, 20, 100, 500, 20_000} {
		w.exec(t, insertRows, fmt.Sprint("old", rows), rows, time.Hour, true)
		w.exec(t, `analyze outbox`)
		w.wantPlans(t, fmt.Sprint("all published, and then ", rows))
		w.exec(t, insertRows, fmt.Sprint("new", rows), rows, time.Hour, false)
		w.exec(t, `analyze outbox`)
		w.wantPlans(t, fmt.Sprint(rows, " of them not"))
	}
}

// wantPlans wants the plans that Postgres would now keep for the relay's statements.
func (w *world) wantPlans(t *testing.T, when string) {
	t.Helper()
	tx, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), outbox.Settings, true, 0); err != nil {
		t.Fatal(err)
	}
	for name, statement := range map[string]struct {
		sql, args string
		sorts     int // its result of a batch; never what waits
	}{
		"take": {outbox.TakeSQL, `'outbox', 'me', 10, 500, '{}', false, 0`, 1},
		"mark": {outbox.MarkSQL, `'outbox', 'me', 's', '0-1', 10, true, '{1}', '{0-1}', '{}', 500, 0.1, 0`, 1},
		"read": {outbox.ReadSQL, `0, '{}', 500`, 0},
	} {
		text := servertest.Plan(t, tx.Conn(), statement.sql, statement.args)
		if n := strings.Count(text, "Sort Key"); n != statement.sorts {
			t.Errorf("%s: %s sorts %d times, want %d:\n%s", when, name, n, statement.sorts, text)
		}
		plan := strings.Split(text, "\n")
		for i, line := range plan {
			switch {
			case !strings.Contains(line, " on outbox") || strings.Contains(line, "outbox_relay") || strings.Contains(line, "Update on"):
			case strings.Contains(line, "Scan using outbox_waiting_by_id"):
			case strings.Contains(line, "Scan Backward using outbox_pkey"): // the newest row
			case strings.Contains(line, "Scan using outbox_pkey") && strings.Contains(plan[i+1], "Cond: (id = ANY"):
			default:
				t.Errorf("%s: %s: %s\n%s", when, name, line, text)
			}
		}
	}
}

// The look at what waits reads the index of that only, among many published rows.
func TestWaitingUsesItsIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, insertRows, "old", 50_000, time.Hour, true)
	w.exec(t, insertRows, "e", 10, time.Hour, false)
	w.exec(t, `analyze outbox`)
	conn := servertest.Connect(t, w.url)
	for _, query := range []string{
		`select count(*) from (select from outbox where published_at is null limit 10000) waiting`,
		`select created_at from outbox where published_at is null order by id + 0 limit 1`,
	} {
		if text := servertest.Plan(t, conn, query, ""); !strings.Contains(text, "outbox_waiting_by_id") || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", query, text)
		}
	}
}
