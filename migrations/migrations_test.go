package migrations_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestFiveAtOnce(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t).URL()
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = migrations.Apply(t.Context(), url, quiet) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), url, quiet); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := check(t, url); err != nil {
		t.Error(err)
	}
	if n := queryInt(t, url, `select count(*) from schema_migrations`); n != 1 {
		t.Errorf("schema_migrations has %d rows", n)
	}
}

// Roles belong to the whole server, the lock to one database: the roles may change while Apply changes them.
func TestRolesChangedByAnother(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t).URL()
	if err := migrations.Apply(t.Context(), url, quiet); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `alter role bonus connection limit 1`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- migrations.Apply(t.Context(), url, quiet) }()
	for queryInt(t, url, `select count(*) from pg_stat_activity where wait_event_type = 'Lock'`) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait")
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWaitsOnlyAsLongAsItsContext(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	exec(t, url, `select 1`)
	holder := connect(t, url)
	if _, err := holder.Exec(t.Context(), `select pg_advisory_lock($1)`, 0x6f72646572); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := signalHandler{slog.DiscardHandler, cancel}
	if err := migrations.Apply(ctx, url, slog.New(waits)); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}

// signalHandler calls said at each line that is logged.
type signalHandler struct {
	slog.Handler
	said func()
}

func (h signalHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h signalHandler) Handle(context.Context, slog.Record) error {
	h.said()
	return nil
}

func TestDirtyIsLeftAlone(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	exec(t, url, `update schema_migrations set dirty = true`)
	if err := check(t, servertest.DatabaseAs(t, url, "bonus")); !errors.Is(err, migrations.ErrDirty) {
		t.Errorf("Check: %v, want ErrDirty", err)
	}
	for range 2 {
		if err := migrations.Apply(t.Context(), url, quiet); !errors.Is(err, migrations.ErrDirty) {
			t.Errorf("Apply: %v, want ErrDirty", err)
		}
	}
	if n := queryInt(t, url, `select count(*) from schema_migrations where dirty`); n != 1 {
		t.Error("it is not dirty any more")
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	exec(t, url, `update schema_migrations set version = version + 1`)
	if err := migrations.Apply(t.Context(), url, quiet); !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("Apply: %v, want ErrNewer", err)
	}
	if err := check(t, servertest.DatabaseAs(t, url, "orders")); err != nil {
		t.Errorf("Check: %v; a service goes on with a newer schema", err)
	}
}

func TestCheckBeforeTheSchemaIsThere(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	for _, statement := range []string{`update schema_migrations set version = 0`, `delete from schema_migrations`, `drop table schema_migrations`} {
		exec(t, url, statement)
		if err := check(t, servertest.DatabaseAs(t, url, "bonus")); !errors.Is(err, migrations.ErrBehind) {
			t.Errorf("after %q: %v, want ErrBehind", statement, err)
		}
	}
}

func TestDownAndUpAgain(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	run := func(names []string) {
		for _, name := range names {
			sql, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			exec(t, url, string(sql))
		}
	}
	down, err := filepath.Glob("*.down.sql")
	if err != nil {
		t.Fatal(err)
	}
	if len(down) != int(migrations.Latest()) {
		t.Fatalf("%d files lead down from version %d", len(down), migrations.Latest())
	}
	slices.Reverse(down)
	run(down)
	exec(t, url, `delete from schema_migrations`)
	if n := queryInt(t, url, `select count(*) from pg_tables where schemaname = 'public'`); n != 1 {
		t.Errorf("%d tables are left, want schema_migrations only", n)
	}
	// Not Apply: it would bring back the roles' limits in the Postgres that all tests share.
	up, err := filepath.Glob("*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	run(up)
}

// An index that was to be built beforehand, and whose building was interrupted, is built.
func TestInvalidIndexIsBuilt(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	for _, name := range []string{"0004_outbox_waiting_by_id.down.sql", "0004_outbox_waiting_by_id.up.sql"} {
		sql, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, url, string(sql))
		if strings.Contains(name, "down") {
			exec(t, url, `create index outbox_waiting_by_id on outbox ((id + 0)) where published_at is null`)
			exec(t, url, `update pg_index set indisvalid = false where indexrelid = 'outbox_waiting_by_id'::regclass`)
		}
	}
	if n := queryInt(t, url, `select count(*) from pg_index where indexrelid = 'outbox_waiting_by_id'::regclass and indisvalid`); n != 1 {
		t.Error("the index is not valid")
	}
}

// The connection budget: with every role at its limit, an administrator still gets in.
func TestConnectionBudget(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t).URL()
	if err := migrations.Apply(t.Context(), url, quiet); err != nil {
		t.Fatal(err)
	}
	limits := queryInt(t, url, `select sum(rolconnlimit) from pg_roles where rolcanlogin and not rolsuper`)
	unlimited := queryInt(t, url, `select count(*) from pg_roles where rolcanlogin and not rolsuper and rolconnlimit < 0`)
	reserved := queryInt(t, url, `select current_setting('superuser_reserved_connections')::int`)
	if limits == 0 || unlimited > 0 || limits+reserved >= 100 {
		t.Errorf("limits add up to %d, %d roles have none, %d are reserved; want less than Postgres's default of 100", limits, unlimited, reserved)
	}
}

func check(t *testing.T, url string) error {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	return migrations.Check(t.Context(), pool)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, url, statement string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func queryInt(t *testing.T, url, query string) int {
	t.Helper()
	var s string
	if err := connect(t, url).QueryRow(t.Context(), `select coalesce((`+query+`), 0)::text`).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
