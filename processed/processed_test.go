package processed_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/processed"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestClaimOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	if got := claim(t, pool, "bonus", "b", "a", "b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("first claim = %q, want a and b once each, in order", got)
	}
	// "B" sorts before "a" in bytes only.
	if got := claim(t, pool, "bonus", "c", "a", "B"); !slices.Equal(got, []string{"B", "c"}) {
		t.Errorf("second claim = %q, want B and c", got)
	}
	if got := claim(t, pool, "bonus", "a", "b", "c"); len(got) != 0 {
		t.Errorf("third claim = %q, want nothing", got)
	}
	if got := claim(t, pool, "other", "a"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("claim of another consumer = %q, want a", got)
	}
	if got := claim(t, pool, "bonus"); len(got) != 0 {
		t.Errorf("claim of nothing = %q", got)
	}
}

func TestClaimIsUndoneByRollback(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := processed.Claim(t.Context(), tx, "bonus", []string{"a"}); err != nil || len(got) != 1 {
		t.Fatalf("claim = %q, %v", got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, pool, "bonus", "a"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("claim after the rollback = %q, want a", got)
	}
}

// A second transaction waits for the first, and gets what that one did not.
func TestClaimAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			first, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := processed.Claim(t.Context(), first, "bonus", []string{"c", "a"}); err != nil {
				t.Fatal(err)
			}
			second := make(chan []string)
			go func() {
				defer close(second)
				second <- claim(t, pool, "bonus", "b", "c", "a", "d")
			}()
			waitUntil(t, "the second claim waits for a lock", func() bool {
				var waiting bool
				err := pool.QueryRow(t.Context(), `
					select exists (select from pg_stat_activity
					               where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting)
				return err == nil && waiting
			})
			if err := end(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{"commit": {"b", "d"}, "rollback": {"a", "b", "c", "d"}}[name]
			if got := <-second; !slices.Equal(got, want) {
				t.Errorf("second claim = %q, want %q", got, want)
			}
		})
	}
}

// Many claim the same events in different orders: each event is claimed once, and nobody is refused for a deadlock.
func TestClaimNeverDeadlocks(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const workers, rounds, size = 4, 20, 200
	got := make(chan []string)
	for w := range workers {
		go func() {
			for round := range rounds {
				ids := make([]string, size)
				for i := range ids {
					// A different order for each worker.
					ids[i] = fmt.Sprintf("%d-%d", round, (i*7+w*31)%size)
				}
				if w%2 == 1 {
					slices.Reverse(ids)
				}
				got <- claim(t, pool, "bonus", ids...)
			}
		}()
	}
	seen := make(map[string]int)
	for range workers * rounds {
		for _, id := range <-got {
			seen[id]++
		}
	}
	if len(seen) != rounds*size {
		t.Errorf("%d events were claimed, want %d", len(seen), rounds*size)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s was claimed %d times", id, n)
		}
	}
}

func TestClaimMany(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("event-%05d", i)
	}
	if got := claim(t, pool, "bonus", ids[:5000]...); len(got) != 5000 {
		t.Errorf("claimed %d, want 5000", len(got))
	}
	if got := claim(t, pool, "bonus", ids...); !slices.Equal(got, ids[5000:]) {
		t.Errorf("claimed %d, want the other 5000", len(got))
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	owner := connect(t, url)
	if _, err := owner.Exec(t.Context(), `
		insert into processed (consumer, event_id, processed_at)
		select consumer, 'e' || id, now() - age
		from unnest('{bonus,other}'::text[]) consumer,
		     (select i as id, case when i <= 2500 then interval '9 days 1 minute' else interval '8 days 23 hours' end as age
		      from generate_series(1, 2600) i) rows`); err != nil {
		t.Fatal(err)
	}
	pool := connect(t, servertest.DatabaseAs(t, url, "bonus"))
	if n, err := processed.Prune(t.Context(), pool, "bonus", 9*24*time.Hour); n != 2500 || err != nil {
		t.Errorf("Prune = %d, %v; want 2500", n, err)
	}
	var bonus, other int
	if err := owner.QueryRow(t.Context(), `
		select count(*) filter (where consumer = 'bonus'), count(*) filter (where consumer = 'other')
		from processed`).Scan(&bonus, &other); err != nil {
		t.Fatal(err)
	}
	if bonus != 100 || other != 2600 {
		t.Errorf("left: %d of bonus and %d of other, want 100 and 2600", bonus, other)
	}
}

// To look for old markers among many that are not must not read them all, again and again.
func TestPruneReadsWhatIsOld(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	if _, err := connect(t, url).Exec(t.Context(), `insert into processed (consumer, event_id) select 'bonus', i::text from generate_series(1, 20000) i`); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, url).Exec(t.Context(), `analyze processed`); err != nil {
		t.Fatal(err)
	}
	if plan := servertest.Plan(t, servertest.Connect(t, url), processed.PruneSQL, `'bonus', 86400, 1000`); !strings.Contains(plan, "Index Cond: (processed_at <") {
		t.Errorf("it reads all markers:\n%s", plan)
	}
}

func TestErrorsNameTheConsumer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	_, err = processed.Claim(t.Context(), tx, "bonus", []string{"a\x00b"})
	if want := "claim 1 events for bonus: "; err == nil || err.Error()[:len(want)] != want {
		t.Errorf("claim of a NUL = %v, want %s…", err, want)
	}
}

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return connect(t, servertest.DatabaseAs(t, servertest.Database(t), "bonus"))
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// claim claims in a transaction of its own.
func claim(t *testing.T, pool *pgxpool.Pool, consumer string, ids ...string) []string {
	t.Helper()
	var fresh []string
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		fresh, err = processed.Claim(t.Context(), tx, consumer, ids)
		return err
	})
	if err != nil {
		t.Errorf("claim for %s: %v", consumer, err)
	}
	return fresh
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
