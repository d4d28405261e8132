package servertest

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"example.com/orderfanout/internal/localserver"
)

// Redis starts a redis-server for one test, which may kill, freeze and restart it. args come last on its command
// line, such as "--maxmemory", "10mb". It is stopped, and its data removed, when the test ends.
func Redis(t testing.TB, args ...string) *localserver.Redis {
	t.Helper()
	r, err := localserver.StartRedis(t.Context(), localserver.RedisConfig{Dir: TempDir(t), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Kill(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Postgres starts a Postgres for one test, which may kill, freeze and restart it. It is empty: migrations.Apply on its
// URL makes the schema and the roles, with their limits. It is stopped, and its data removed, when the test ends.
func Postgres(t testing.TB, settings ...string) *localserver.Postgres {
	t.Helper()
	blank, err := makeBlank()
	if err != nil {
		t.Fatal(err)
	}
	dir := TempDir(t) + "/data"
	if out, err := exec.Command("cp", "-a", blank, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", blank, err, out)
	}
	p, err := localserver.StartPostgres(t.Context(), localserver.PostgresConfig{Dir: dir, NoSync: true, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var (
	makeBlank = sync.OnceValues(newBlank)
	blankDir  string // set by newBlank
)

// newBlank makes the data directory that every Postgres of this process begins as a copy of: a copy takes a tenth of the time
// of making one.
func newBlank() (string, error) {
	dir, err := makeTempDir()
	if err != nil {
		return "", err
	}
	blankDir = dir
	p, err := localserver.StartPostgres(context.Background(), localserver.PostgresConfig{Dir: dir + "/data", NoSync: true})
	if err != nil {
		return "", err
	}
	return dir + "/data", p.Stop()
}

// TempDir is t.TempDir, but a directory that the user that postgres runs as may enter.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := makeTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func makeTempDir() (string, error) {
	parent := os.TempDir()
	if localserver.PostgresReaches(parent+"/x") != nil {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "orderfanout-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}
