package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/outbox"
)

// Plans that were made for an outbox of few rows are right for a large one: what waits is found in the index of what waits, and a row
// that is marked by its id.
func TestPlansDoNotAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wantPlans(t, "empty")
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
	for name, statement := range map[string]struct{ sql, args string }{
		"take": {outbox.TakeSQL, `'outbox', 'me', 10, 500, '{}', false`},
		"mark": {outbox.MarkSQL, `'outbox', 'me', 's', '0-1', 10, true, '{1}', '{0-1}', '{}', 500, 0.1`},
	} {
		if _, err := tx.Exec(t.Context(), "prepare "+name+" as "+statement.sql); err != nil {
			t.Fatal(err)
		}
		plan := explain(t, tx, "execute "+name+"("+statement.args+")")
		text := strings.Join(plan, "\n")
		if strings.Count(text, "Sort Key") != 1 {
			t.Errorf("%s: %s sorts more than its result:\n%s", when, name, text)
		}
		for i, line := range plan {
			switch {
			case !strings.Contains(line, " on outbox") || strings.Contains(line, "outbox_relay") || strings.Contains(line, "Update on"):
			case strings.Contains(line, "Scan using outbox_waiting"):
			case (strings.Contains(line, "Scan using outbox_pkey") || strings.Contains(line, "Bitmap ")) && strings.Contains(plan[i+1], "Cond: (id = ANY"):
			default:
				t.Errorf("%s: %s: %s\n%s", when, name, line, text)
			}
		}
		if _, err := tx.Exec(t.Context(), "deallocate "+name); err != nil {
			t.Fatal(err)
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
	for _, query := range []string{
		`select count(*) from (select from outbox where published_at is null limit 10000) waiting`,
		`select created_at from outbox where published_at is null order by published_at, id limit 1`,
	} {
		if text := strings.Join(explain(t, w.owner, query), "\n"); !strings.Contains(text, "outbox_waiting") || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", query, text)
		}
	}
}

// explain is the plan of a statement, a line each.
func explain(t *testing.T, on interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, statement string) []string {
	t.Helper()
	rows, err := on.Query(t.Context(), "explain (costs off) "+statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
