package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/migrations"
)

// asMigrate makes the test program the program itself, so that a test can kill it.
const asMigrate = "MIGRATE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asMigrate) != "" {
		main()
		return
	}
	servertest.Main(m)
}

func program(url string, settings ...string) (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), asMigrate+"=1", "DATABASE_URL="+url), settings...)
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t).URL()
	ctx := t.Context()

	// Somebody holds what the first migration needs, so that it waits in its middle.
	holder := connect(t, url)
	tx, err := holder.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `create table bonus_accounts (x int)`); err != nil {
		t.Fatal(err)
	}
	cmd, _ := program(url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	watch := connect(t, url)
	const migrating = `select count(*) from pg_stat_activity where wait_event_type = 'Lock'`
	waitFor(t, watch, migrating, 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()

	// What it left running ends though it still waits, and gives everything back.
	waitFor(t, watch, migrating, 0)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	cmd, out := program(url)
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("after the kill: %v, want exit 1:\n%s", err, out)
	}
	const repair = "delete from schema_migrations"
	if !strings.Contains(out.String(), "dirty") || !strings.Contains(out.String(), repair) {
		t.Fatalf("it does not say what to do:\n%s", out)
	}
	if _, err := watch.Exec(ctx, repair); err != nil {
		t.Fatal(err)
	}
	cmd, out = program(url)
	if err := cmd.Run(); err != nil {
		t.Fatalf("after the repair: %v\n%s", err, out)
	}
	if !strings.Contains(out.String(), fmt.Sprintf(`"version":%d`, migrations.Latest())) {
		t.Errorf("it does not say what it did:\n%s", out)
	}
}

func TestWaitsForPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	said := &waiter{text: "does not answer yet", seen: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), environment("DATABASE_URL", server.URL()), said) }()
	<-said.seen
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(t.Context(), environment("DATABASE_URL", server.URL(), "DATABASE_WAIT", "300ms"), &out)
	if err == nil || !strings.Contains(err.Error(), "waited 300ms") {
		t.Errorf("err = %v", err)
	}
}

func TestWrongDatabaseIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	url := strings.Replace(servertest.Database(t), "/test_", "/missing_", 1)
	var out bytes.Buffer
	err := run(t.Context(), environment("DATABASE_URL", url), &out)
	if err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Errorf("err = %v, want 3D000", err)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), environment("DATABASE_WAIT", "soon", "LOG_LEVEL", "loud"), nil)
	for _, name := range []string{"DATABASE_URL", "DATABASE_WAIT", "LOG_LEVEL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("err = %v, want it to name %s", err, name)
		}
	}
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// waiter closes seen when the text is written to it.
type waiter struct {
	text string
	seen chan struct{}
	done bool
}

func (w *waiter) Write(b []byte) (int, error) {
	if !w.done && strings.Contains(string(b), w.text) {
		w.done = true
		close(w.seen)
	}
	return len(b), nil
}

func waitFor(t *testing.T, conn *pgx.Conn, query string, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var got int
		if err := conn.QueryRow(t.Context(), query).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d, want %d: %s", got, want, query)
		}
	}
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
