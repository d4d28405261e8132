package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver/servertest"
)

// TestOthersRedis shows that a lab leaves in somebody's Redis what it did not make, and nothing of its own.
func TestOthersRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := redis.NewClient(server.Options())
	t.Cleanup(func() { client.Close() })
	set := func(key, value string) {
		if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("lab:precious", "1")
	cmd, _, stderr := command(t, "fifo", "--redis", server.URL())
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "lab:precious") {
		t.Errorf("where others have keys under lab: it ended with %v: %s", err, stderr)
	}
	if n := client.Exists(t.Context(), "lab:precious").Val(); n != 1 {
		t.Error("lab:precious is gone")
	}
	client.Del(t.Context(), "lab:precious")
	set("other", "1")
	set(ownerKey, owner) // of a lab that was killed
	set(jobsKey, "no list")
	cmd, stdout, stderr := command(t, "fifo", "--redis", server.URL())
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "other" {
		t.Errorf("it left %v, want only other", keys)
	}
}

// TestOthersPostgres shows that a lab works in the Postgres that it is given, in a schema of its own only, and leaves nothing there: after Ctrl-C, and
// at its end.
func TestOthersPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	exec := func(statement string) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	count := func(query string) int {
		n := -1
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			return -1
		}
		return n
	}
	onlyOthers := func(when string) {
		t.Helper()
		if n := count("select count(*) from orders"); n != 3 {
			t.Errorf("%s others have %d orders, want 3", when, n)
		}
		if n := count("select count(*) from pg_namespace where nspname = 'lab'"); n != 0 {
			t.Errorf("%s the schema lab is there", when)
		}
	}
	exec("create table orders as select generate_series(1, 3) as id")

	exec("create schema lab")
	exec("create table lab.precious as select 1")
	cmd, _, stderr := command(t, "dual-write", "--postgres", server.URL())
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "schema lab that no lab has made") {
		t.Errorf("where others have a schema lab it ended with %v: %s", err, stderr)
	}
	if n := count("select count(*) from lab.precious"); n != 1 {
		t.Error("lab.precious is gone")
	}
	exec("drop schema lab cascade")

	exec("create schema lab")
	exec("comment on schema lab is '" + owner + "'") // of a lab that was killed
	exec("create table lab.orders as select generate_series(1, 9) as id")
	cmd, stdout, stderr := command(t, "dual-write", "--step", "--postgres", server.URL())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Write([]byte("\n")) // the first step, which stores one order
	for end := time.Now().Add(time.Minute); count("select count(*) from lab.orders") != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has stored no order in this Postgres\n%s%s", stdout, stderr)
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v, want exit code %d\n%s", cmd.ProcessState, exitInterrupted, stderr)
	}
	onlyOthers("after Ctrl-C")

	if testing.Short() || raced {
		return
	}
	cmd, stdout, stderr = command(t, "dual-write", "--postgres", server.URL())
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	onlyOthers("at the end")
}
