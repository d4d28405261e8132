package e2e

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/internal/link"
)

// entriesByEvent counts the entries of each event, all of which must be in the outbox.
func (s *system) entriesByEvent() map[string]int {
	s.Helper()
	copies := map[string]int{}
	for _, m := range s.entries() {
		id, _ := m.Values["id"].(string)
		copies[id]++
	}
	for id := range copies {
		if s.count("select count(*) from outbox where event_id = $1", id) != 1 {
			s.Errorf("event %s of the stream is not in the outbox", id)
		}
	}
	return copies
}

// TestF20AnswerLost: Redis takes the events, and its answer is lost now and then. They are added again under the same event
// ids, and the work is done once.
func TestF20AnswerLost(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	l := s.link(s.redis.Addr())
	var asked, lost atomic.Int64
	l.Judge(func(request []byte) link.Fate {
		drop := bytes.Contains(request, []byte("XADD")) && asked.Add(1)%5 == 0
		if drop {
			lost.Add(1)
		}
		return link.Fate{DropAnswer: drop}
	})
	orders, analytics := s.run("orders", "o", redisVia(l, "orders")), s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	for i := range 50 {
		s.mustPost(orders, fmt.Sprint("c-", i%7), 1)
		s.eventually("it is published", func() bool { return s.count("select count(*) from outbox where published_at is null") == 0 })
	}
	s.balanced(analytics, 0)
	s.blameless()
	if n := len(s.entries()); lost.Load() < 5 || n < 50+int(lost.Load()) {
		t.Errorf("%d entries after %d lost answers, want 50 and one for each at least", n, lost.Load())
	}
	if n := len(s.entriesByEvent()); n != 50 {
		t.Errorf("%d events, want 50", n)
	}
}

// TestF28ManyRelays: three replicas, one of them killed in the middle. Each row is published once, save for the batch that was
// on its way, and what the dead one held goes out within its lease. (No consumer relies on the order of events.)
func TestF28ManyRelays(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	analytics := s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	replicas := []*instance{s.run("orders", "o1"), s.run("orders", "o2"), s.run("orders", "o3")}
	var wg sync.WaitGroup
	var placed atomic.Int64
	for _, in := range replicas {
		for c := range 2 {
			wg.Go(func() {
				for range 84 {
					if _, _, err := s.post(in, fmt.Sprint("c-", c), 1); err == nil { // not at the killed one
						placed.Add(1)
					}
				}
			})
		}
	}
	s.eventually("half are placed", func() bool { return placed.Load() > 250 })
	s.kill(replicas[0])
	wg.Wait()
	if n := placed.Load(); n < 336 {
		t.Errorf("%d orders were placed, want all at the two that live", n)
	}
	s.within(20*time.Second, "all is settled", s.settled)
	s.balanced(analytics, 0)
	s.blameless()
	rows := s.count("select count(*) from outbox")
	if n := int64(len(s.entries())); n > rows+100 || n < rows {
		t.Errorf("%d entries for %d rows, want at most what waited at the kill twice", n, rows)
	}
}

// TestF29RedisHangs: Redis stops answering under load. Orders are taken as before, Postgres keeps no transaction open meanwhile,
// and all drains afterwards.
func TestF29RedisHangs(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	stop := s.load(f.orders, 100*time.Millisecond)
	s.eventually("the load runs", func() bool { return s.count("select count(*) from bonus_ledger") > 5 })
	const sessions = "select count(*) from pg_stat_activity where usename = 'orders'"
	conns := s.count(sessions)
	if err := s.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n := s.count("select count(*) from pg_stat_activity where usename in ('orders', 'bonus') and state like 'idle in transaction%' and now() - xact_start > interval '2 s'"); n != 0 {
			t.Errorf("%d transactions are held open", n)
		}
		if n := s.count(sessions); n > conns+4 {
			t.Errorf("%d sessions of orders, %d before", n, conns)
		}
	}
	if s.count("select count(*) from outbox where published_at is null") < 30 {
		t.Error("the outbox did not grow")
	}
	if err := s.redis.Resume(); err != nil {
		t.Fatal(err)
	}
	if placed, slowest := stop(); placed < 40 || slowest > 3*time.Second {
		t.Errorf("%d orders, the slowest in %s", placed, slowest)
	}
	s.within(15*time.Second, "all is settled", s.settled)
	s.balanced(f.analytics, 0)
	s.blameless()
}

// TestF30PublishedNotMarked: the relay dies between the stream and the mark. What it published goes out again with the same
// event ids, and the work is done once.
func TestF30PublishedNotMarked(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	l := s.link(s.redis.Addr())
	l.Cut()
	orders := s.run("orders", "o", redisVia(l, "orders"))
	for range 10 {
		s.mustPost(orders, "c-1", 1)
	}
	s.term(orders, 10*time.Second)
	tx, err := s.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "lock table outbox in share row exclusive mode"); err != nil { // reads pass, marks wait
		t.Fatal(err)
	}
	orders = s.launch("orders", "o")
	s.eventually("the events are in the stream", func() bool { return len(s.entries()) == 10 })
	s.kill(orders)
	// Its session does not see that while it waits for the lock, and would mark after all.
	s.count("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'orders'")
	s.eventually("its sessions are gone", func() bool { return s.count("select count(*) from pg_stat_activity where usename = 'orders'") == 0 })
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	s.run("orders", "o")
	analytics := s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	s.balanced(analytics, 0)
	s.blameless()
	copies := s.entriesByEvent()
	for id, n := range copies {
		if n != 2 {
			t.Errorf("event %s is in the stream %d times, want twice", id, n)
		}
	}
	if len(copies) != 10 {
		t.Errorf("%d events, want 10", len(copies))
	}
}

// TestF31BacklogWithoutTraffic: what waited for Redis goes out when Redis is back, and what is placed after all sessions
// were ended goes out too; nothing new has to come, and nobody is restarted.
func TestF31BacklogWithoutTraffic(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	if err := s.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		s.mustPost(f.orders, fmt.Sprint("c-", i%7), 1)
	}
	if err := s.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	published := func() bool { return s.count("select count(*) from outbox where published_at is null") == 0 }
	s.within(10*time.Second, "all are published", published)
	s.balanced(f.analytics, 0)
	if n := s.count("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'orders'"); n < 2 {
		t.Errorf("%d sessions ended, want those of the relay", n)
	}
	for range 5 {
		s.mustPost(f.orders, "c-1", 1)
	}
	s.within(10*time.Second, "all are published", published)
	s.balanced(f.analytics, 0)
	s.blameless()
}

// TestF32OldRows: after a long outage the outbox has many rows that went out long ago, and some as old that never did. The first
// are removed in small batches, the others are published, and an order that comes meanwhile does not wait.
func TestF32OldRows(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	s.exec(`
		create table deletions (n int);
		create function note_deletion() returns trigger language plpgsql security definer as
			'begin insert into public.deletions select count(*) from gone; return null; end';
		create trigger deletion after delete on outbox referencing old table as gone for each statement execute function note_deletion();
		insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data, created_at, published_at, entry_id)
		select case when i % 5000 = 0 then 'unsent-' else 'sent-' end || i, '/orders', 'other.v1', now() - interval '30 days', '', '', '', '', '', '{}',
		       now() - interval '30 days', case when i % 5000 > 0 then now() - interval '30 days' end, case when i % 5000 > 0 then '1-1' end
		from generate_series(1, 50000) i`)
	orders := s.run("orders", "o")
	began := time.Now()
	s.mustPost(orders, "c-1", 1)
	s.eventually("the new order is in the stream, and what never went out", func() bool { return len(s.entries()) == 1+10 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the new order took %s", took)
	}
	s.eventually("what went out long ago is removed", func() bool { return s.count("select count(*) from outbox where event_id like 'sent-%'") == 0 })
	if n := s.count("select count(*) from outbox where event_id like 'unsent-%' and published_at is not null"); n != 10 {
		t.Errorf("%d of 10 old rows that never went out are published", n)
	}
	if sum, most := s.count("select sum(n) from deletions"), s.count("select max(n) from deletions"); sum != 50_000-10 || most > 1000 {
		t.Errorf("%d rows were removed, up to %d at once; want %d, up to 1000", sum, most, 50_000-10)
	}
	if copies := s.entriesByEvent(); len(copies) != 11 {
		t.Errorf("%d events in the stream, want 11 once each", len(copies))
	}
}
