package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestF16RedisHangs: Redis stops answering. Every consumer says so soon, without letting the one who asks wait, and is ready
// again by itself.
func TestF16RedisHangs(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	if err := s.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.consumers() {
		s.within(15*time.Second, in.service+" says that it is not ready", func() bool { return in.status("/readyz") == 503 })
	}
	var wg sync.WaitGroup
	for _, in := range f.all() {
		for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
			wg.Go(func() {
				begun := time.Now()
				if in.status(path) == 0 || time.Since(begun) > 4*time.Second {
					t.Errorf("%s of %s answered after %s", path, in.service, time.Since(begun))
				}
			})
		}
	}
	wg.Wait()
	if err := s.redis.Resume(); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.all() {
		s.within(15*time.Second, in.service+" is ready again", in.ready)
	}
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	s.blameless()
}

// TestF16HandlerHangs: the handler waits for a locked table while ten entries wait for it. The health of the service, and the
// figures, say so; once the lock is gone all is well by itself, and no entry is to blame.
func TestF16HandlerHangs(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("mailer", "m")
	bonus := s.run("bonus", "b", "HANDLER_TIMEOUT=4s", "BATCH_SIZE=5")
	tx, err := s.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "lock table bonus_ledger in share row exclusive mode"); err != nil {
		t.Fatal(err)
	}
	s.postMany(orders, 10)
	s.within(20*time.Second, "bonus says that it is not ready", func() bool {
		begun := time.Now()
		defer func() {
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("/readyz took %s", took)
			}
		}()
		return bonus.status("/readyz") == 503
	})
	if pending, ok := bonus.metric("orderfanout_group_oldest_pending_seconds"); !ok || pending < 1 {
		t.Errorf("the oldest pending entry is %v s old", pending)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	s.within(20*time.Second, "bonus is ready again", bonus.ready)
	s.balanced(analytics, 0)
	s.blameless()
}

// TestF18Idle: with the smallest pool a quiet system says nothing, keeps its connections, and ends at once when told. A trickle
// of orders is done as they come.
func TestF18Idle(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	small := func(service string) string {
		return "REDIS_URL=redis://" + service + ":" + service + "@" + s.redis.Addr() + "?pool_size=1"
	}
	f := fleet{s.launch("orders", "o", small("orders")), s.launch("bonus", "b", small("bonus")),
		s.launch("analytics", "a", small("analytics")), s.launch("mailer", "m", small("mailer"))}
	for _, in := range f.all() {
		s.eventually(in.service+" is ready", in.ready)
	}
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	complaints := func() (n int) {
		for _, in := range f.all() {
			n += len(in.complaints())
		}
		return n
	}
	connections := func() int { return strings.Count(s.client.ClientList(context.Background()).Val(), "\n") }
	before, conns := complaints(), connections()
	calm := s.calm(f.all()...)
	time.Sleep(4 * time.Second) // several block times of quiet: the scenario itself
	calm()
	if n := connections(); n > conns+4 {
		t.Errorf("%d connections after the quiet, %d before", n, conns)
	}
	stop := s.load(f.orders, 20*time.Millisecond)
	s.eventually("two hundred orders are placed", func() bool { return s.count("select count(*) from orders") > 200 })
	stop()
	s.within(5*time.Second, "all is settled", s.settled)
	s.balanced(f.analytics, 0)
	// Each consumer may have three commands more under way at once, and the publisher one, on a machine that is slow to answer.
	if n := connections(); n > conns+3*3+1 {
		t.Errorf("%d connections after the trickle, %d before", n, conns)
	}
	if n := complaints(); n != before {
		t.Errorf("%d complaints, %d before", n, before)
		for _, in := range f.all() {
			t.Log(in.complaints())
		}
	}
	for _, in := range f.all() {
		s.term(in, 4*time.Second) // a read waits for a second
	}
}

// TestF19Outages: Redis, Postgres and the stream's type are wrong for a while. Nobody runs hot, the log stays short, no entry
// is blamed, and all is done soon afterwards without a restart.
func TestF19Outages(t *testing.T) {
	t.Parallel()
	long(t)
	const outage = 8 * time.Second
	for name, fault := range map[string]struct {
		begin, end func(*system) error
		placed     bool // orders are taken meanwhile
	}{
		"redis":    {func(s *system) error { return s.redis.Kill() }, func(s *system) error { return s.redis.Restart() }, true},
		"postgres": {func(s *system) error { return s.postgres.Kill() }, func(s *system) error { return s.postgres.Restart() }, false},
		"wrong type": {
			func(s *system) error {
				return s.client.Do(context.Background(), "SET", "orders", "x").Err()
			},
			func(s *system) error { return s.client.Del(context.Background(), "orders").Err() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			f := s.runAll("HANDLER_DELAY=100ms", "MAX_ATTEMPTS=2")
			s.postMany(f.orders, 10)
			if name == "wrong type" {
				s.balanced(f.analytics, 0)
			}
			if err := fault.begin(s); err != nil {
				t.Fatal(err)
			}
			calm := s.calm(f.all()...)
			for i := range 5 {
				_, res, err := s.post(f.orders, fmt.Sprint("c-", i), 1)
				if placed := err == nil; placed != fault.placed || !placed && (res == nil || res.StatusCode != 503) {
					t.Errorf("an order meanwhile: %v", err)
				}
			}
			time.Sleep(outage) // the scenario itself
			calm()
			if err := fault.end(s); err != nil {
				t.Fatal(err)
			}
			want := s.count("select count(*) from orders")
			s.within(15*time.Second, "all is done", func() bool {
				mails, again := s.mailCount()
				return s.settled() && int64(mails-again) == want && s.count("select count(*) from bonus_ledger") == want
			})
			for _, in := range f.all() {
				s.within(15*time.Second, in.service+" is ready", in.ready)
			}
			s.balanced(f.analytics, 0)
			s.blameless()
		})
	}
}

// TestF21ReadOnly: Redis turns into a replica under load, answers PING and refuses every write, and is a master again later.
// Orders are taken all the while, and nothing is blamed or done twice.
func TestF21ReadOnly(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	f := s.runAll("MAX_ATTEMPTS=2")
	stop := s.load(f.orders, 50*time.Millisecond)
	s.eventually("the load runs", func() bool { return s.count("select count(*) from bonus_ledger") > 10 })
	if err := s.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.consumers() {
		s.eventually(in.service+" says that it is not ready", func() bool { return in.status("/readyz") == 503 })
	}
	s.eventually("the outbox grows", func() bool { return s.count("select count(*) from outbox where published_at is null") > 100 })
	if err := s.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	placed, slowest := stop()
	if placed < 100 || slowest > 3*time.Second {
		t.Errorf("%d orders, the slowest in %s", placed, slowest)
	}
	s.within(15*time.Second, "all is settled", s.settled)
	s.balanced(f.analytics, 0)
	s.blameless()
}
