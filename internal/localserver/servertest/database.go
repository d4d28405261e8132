package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/migrations"
)

// cluster is the Postgres that the tests of one process share.
type cluster struct {
	postgres *localserver.Postgres
	dir      string

	mu        sync.Mutex // one create or drop at a time: a template must not be in use
	databases int
}

const template = "migrated"

var (
	startShared = sync.OnceValues(start)
	shared      *cluster // set by start
)

// Main runs the tests and ends the process with what Run returns.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests, removes what they share, and returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	var errs []error
	if shared != nil {
		errs = append(errs, shared.stop())
	}
	if blankDir != "" {
		errs = append(errs, os.RemoveAll(blankDir))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Database makes a database for one test, with the schema in it, and returns its URL as the owner. It is dropped when the
// test ends, whoever is still connected.
func Database(t testing.TB) string {
	t.Helper()
	c, err := startShared()
	if err != nil {
		t.Fatal(err)
	}
	name, err := c.create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.drop(name); err != nil {
			t.Error(err)
		}
	})
	return c.postgres.DatabaseURL(name, "postgres", "")
}

// DatabaseAs returns the URL for another role (orders, bonus, fanout), to see that its grants suffice.
func DatabaseAs(t testing.TB, databaseURL, role string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, role)
	return u.String()
}

func start() (*cluster, error) {
	dir, err := makeTempDir()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	p, err := localserver.StartPostgres(ctx, localserver.PostgresConfig{
		Dir:      dir + "/data",
		NoSync:   true,
		Settings: []string{"max_connections=500", "shared_buffers=32MB", "max_wal_size=256MB", "autovacuum=off"},
	})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	shared = &cluster{postgres: p, dir: dir}
	if err := shared.exec("create database " + template); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	if err := migrations.Apply(ctx, p.DatabaseURL(template, "postgres", ""), quiet); err != nil {
		return nil, err
	}
	return shared, shared.exec(`do $$
		declare name text;
		begin
			for name in select rolname from pg_roles where rolconnlimit >= 0 loop
				execute format('alter role %I connection limit -1', name);
			end loop;
		end $$`)
}

func (c *cluster) create() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.databases++
	name := fmt.Sprintf("test_%d", c.databases)
	return name, c.exec("create database " + name + " template " + template)
}

func (c *cluster) drop(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exec("drop database " + name + " with (force)")
}

func (c *cluster) exec(statement string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.postgres.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		first, _, _ := strings.Cut(statement, "\n")
		return fmt.Errorf("%s: %w", first, err)
	}
	return nil
}

func (c *cluster) stop() error {
	if err := c.postgres.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}
