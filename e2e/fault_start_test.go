package e2e

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/migrations"
)

// term2 stops a process with two signals. It must not end with the first, and end at once, with an error, at the second.
func (s *system) term2(in *instance) {
	s.Helper()
	if err := in.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if in.Wait(time.Second) {
		s.Errorf("%s ended before its work", in.service)
	}
	if err := in.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if !in.Wait(4*time.Second) || in.State().ExitCode() != 1 {
		s.Errorf("%s after a second signal: %v, want exit code 1 at once", in.service, in.State())
	}
}

// TestF53GraceTime: what docker compose gives a service to end is more than its longest handler, and the signal reaches it: the
// program is process 1 of its container, not a child of a shell.
func TestF53GraceTime(t *testing.T) {
	t.Parallel()
	long(t)
	compose, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)x-service:.*?stop_grace_period: (\S+)`).FindSubmatch(compose)
	if found == nil {
		t.Fatal("the services have no stop_grace_period")
	}
	const longest = 30 * time.Second // HANDLER_TIMEOUT
	if grace, err := time.ParseDuration(string(found[1])); err != nil || grace < longest+5*time.Second {
		t.Errorf("stop_grace_period %s: want more than HANDLER_TIMEOUT, %s", found[1], longest)
	}
	if strings.Contains(string(compose), "HANDLER_TIMEOUT:") {
		t.Error("docker-compose.yml sets HANDLER_TIMEOUT: compare it here")
	}
	dockerfile, err := os.ReadFile("../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^ENTRYPOINT \["/app"\]`).Match(dockerfile) {
		t.Error("the Dockerfile does not start the program itself")
	}
}

// TestF55StartsBeforeAll: the services start with nobody there, Redis comes first and Postgres later. They stay up, calm and
// not ready, and all work in the end.
func TestF55StartsBeforeAll(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	if err := s.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	f := fleet{mailer: s.launch("mailer", "m"), analytics: s.launch("analytics", "a"), bonus: s.launch("bonus", "b"), orders: s.launch("orders", "o")}
	alive := func(unready ...*instance) {
		t.Helper()
		for _, in := range unready {
			s.within(10*time.Second, in.service+" is alive", func() bool { return in.status("/healthz") == 200 })
			if code := in.status("/readyz"); code != 503 {
				t.Errorf("/readyz of %s is %d, want 503", in.service, code)
			}
		}
	}
	alive(f.all()...)
	calm := s.calm(f.all()...)
	time.Sleep(3 * time.Second) // the scenario itself
	calm()
	if err := s.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, in := range []*instance{f.mailer, f.analytics} {
		s.within(15*time.Second, in.service+" is ready", in.ready)
	}
	alive(f.bonus, f.orders)
	if err := s.postgres.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.all() {
		s.within(15*time.Second, in.service+" is ready", in.ready)
	}
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	s.blameless()
}

// TestF55SchemaLater: the services start on an empty database and are not ready until it is migrated.
func TestF55SchemaLater(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	if _, err := s.db.Exec(ctx, "create database late"); err != nil {
		t.Fatal(err)
	}
	late := func(service string) string {
		return "DATABASE_URL=" + s.postgres.DatabaseURL("late", service, service)
	}
	orders, bonus := s.launch("orders", "o", late("orders")), s.launch("bonus", "b", late("bonus"))
	analytics := s.run("analytics", "a")
	s.run("mailer", "m")
	for _, in := range []*instance{orders, bonus} {
		s.eventually(in.service+" says that it is not ready", func() bool { return in.status("/readyz") == 503 })
	}
	s.database = s.postgres.DatabaseURL("late", "postgres", "")
	if err := migrations.Apply(ctx, s.database, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	db, err := pgxpool.New(ctx, s.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s.db.Close()
	s.db = db // the books are there now
	for _, in := range []*instance{orders, bonus} {
		s.within(15*time.Second, in.service+" is ready", in.ready)
	}
	s.mustPost(orders, "c-1", 1)
	s.balanced(analytics, 0)
	s.blameless()
}

// TestF55WrongPassword: a service is refused by its server at first. Once the server is put right it works, without a restart;
// an order that was taken before is done then.
func TestF55WrongPassword(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	if _, err := s.db.Exec(ctx, "alter role bonus nologin"); err != nil {
		t.Fatal(err)
	}
	password := func(text string) {
		t.Helper()
		if err := s.client.Do(ctx, "ACL", "SETUSER", "mailer", "resetpass", ">"+text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	password("another")
	f := s.launchAll()
	for _, in := range []*instance{f.mailer, f.bonus} {
		s.eventually(in.service+" says that it is not ready", func() bool { return in.status("/readyz") == 503 })
	}
	s.eventually("orders is ready", f.orders.ready)
	s.mustPost(f.orders, "c-1", 1)
	s.eventually("it is published", func() bool { return len(s.entries()) == 1 })
	calm := s.calm(f.mailer, f.bonus)
	time.Sleep(3 * time.Second) // the scenario itself
	calm()
	password("mailer")
	if _, err := s.db.Exec(ctx, "alter role bonus login"); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.all() {
		s.within(15*time.Second, in.service+" is ready", in.ready)
	}
	s.balanced(f.analytics, 0)
	s.blameless()
}
