package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

func (s *system) exec(statement string) {
	s.Helper()
	if _, err := s.db.Exec(context.Background(), statement); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

// TestF24RefusedForAWhile: Postgres refuses the work, for want of a privilege and then of a table. Reading goes on, nothing is
// blamed or lost, and all is done soon after.
func TestF24RefusedForAWhile(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll("MAX_ATTEMPTS=2")
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	for _, fault := range [][2]string{
		{"revoke insert on bonus_ledger from bonus", "grant insert on bonus_ledger to bonus"},
		{"alter table bonus_ledger rename to elsewhere", "alter table elsewhere rename to bonus_ledger"},
	} {
		s.exec(fault[0])
		s.postMany(f.orders, 20)
		s.eventually("bonus says that it is not ready", func() bool { return f.bonus.status("/readyz") == 503 })
		s.mustPost(f.orders, "c-2", 1)
		s.eventually("the others are done", func() bool { return s.pending("mailer") == 0 && s.pending("analytics") == 0 })
		s.exec(fault[1])
		s.within(15*time.Second, "bonus is ready again", f.bonus.ready)
		s.balanced(f.analytics, 0)
	}
	s.blameless()
}

// TestF47ManyWorkers: a thousand and more orders of seven customers are in the stream before three workers of each kind begin.
// They write the same accounts and sums all the time, in batches, and neither meet a deadlock nor lose count.
func TestF47ManyWorkers(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	orders := s.run("orders", "o")
	s.postMany(orders, 1500)
	s.eventually("all are in the stream", func() bool { return s.client.XLen(context.Background(), "orders").Val() == 1500 })
	for _, name := range []string{"1", "2", "3"} {
		s.launch("bonus", "b"+name, "CONCURRENCY=4")
		s.launch("analytics", "a"+name, "CONCURRENCY=4")
	}
	s.launch("mailer", "m")
	s.balanced(s.run("analytics", "a"), 0)
	s.blameless()
	if n := s.count("select deadlocks from pg_stat_database where datname = $1", dbName); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// TestF49SchemaChanges: columns come and types widen under load. No client sees an error, no entry an attempt, and nobody is
// restarted.
func TestF49SchemaChanges(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	stop := s.load(f.orders, 10*time.Millisecond)
	for i, change := range []string{
		"alter table orders add column note text",
		"alter table orders alter column customer_id type varchar(500)",
		"alter table order_items alter column position type bigint",
		"alter table order_items add column note text default 'x'",
		"alter table outbox add column note text",
		"alter table processed add column note text",
		"alter table bonus_ledger add column note text",
		"alter table bonus_accounts alter column balance type numeric",
	} {
		s.eventually("the load runs", func() bool { return s.count("select count(*) from bonus_ledger") > int64(20*i) })
		s.exec(change)
	}
	n := s.count("select count(*) from orders")
	s.eventually("the load still runs", func() bool { return s.count("select count(*) from orders") > n+20 })
	stop()
	s.balanced(f.analytics, 0)
	s.blameless()
	if f.bonus.log.has(`"outcome":"retry"`) {
		t.Errorf("a change was counted as a failure:\n%s", f.bonus.log)
	}
}

// TestF50SmallPools: with pools of two connections and of one, two hundred entries wait for each group and a hundred orders
// come at once. All is done; every client and everybody who asks for health gets an answer in time.
func TestF50SmallPools(t *testing.T) {
	t.Parallel()
	long(t)
	for _, size := range []int{2, 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			small := func(service string) string {
				return fmt.Sprintf("DATABASE_URL=%s&pool_max_conns=%d", s.postgres.DatabaseURL(dbName, service, service), size)
			}
			orders := s.run("orders", "o", small("orders"))
			s.postMany(orders, 200)
			bonus, analytics, mailer := s.launch("bonus", "b", small("bonus")), s.launch("analytics", "a"), s.launch("mailer", "m")
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					begun := time.Now()
					status := s.try(orders, fmt.Sprint("c-", i), "k", 1, 30*time.Second)
					if status != 201 && status != 503 {
						t.Errorf("status %d after %s", status, time.Since(begun))
					}
				})
			}
			for _, in := range []*instance{orders, bonus, analytics, mailer} {
				wg.Go(func() {
					for range 5 {
						begun := time.Now()
						in.status("/readyz")
						if took := time.Since(begun); took > 4*time.Second {
							t.Errorf("/readyz of %s took %s", in.service, took)
						}
					}
				})
			}
			wg.Wait()
			s.balanced(analytics, 0)
			s.blameless()
			for _, in := range []*instance{orders, bonus} {
				s.eventually(in.service+" is ready", in.ready)
			}
		})
	}
}

// TestF52WhichDay: services and database live in zones far from each other, and orders fall around midnight, on a day on which
// clocks change. Each counts on the day of its order in UTC, also for one who catches up later or meets it again.
func TestF52WhichDay(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	s.exec("alter database " + dbName + " set timezone to 'Pacific/Kiritimati'")
	l := s.link(s.redis.Addr())
	l.Cut()
	orders := s.run("orders", "o", "TZ=America/Adak", redisVia(l, "orders"))
	times := []string{
		"2026-10-24T23:59:59.999999Z", "2026-10-25T00:00:00Z", "2026-10-25T01:30:00Z", // clocks go back in Europe
		"2026-10-25T23:59:59Z", "2026-10-26T00:00:00Z",
	}
	var ids []string
	for range times {
		ids = append(ids, s.mustPost(orders, "c-1", 1).ID)
	}
	s.kill(orders) // or its relay may be about to publish what it has read
	for i, at := range times {
		if _, err := s.db.Exec(context.Background(), "update orders set created_at = $2::timestamptz where id = $1::uuid", ids[i], at); err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.Exec(context.Background(), `update outbox set data = convert_to(regexp_replace(convert_from(data, 'UTF8'),
			'"created_at":"[^"]*"', '"created_at":"' || $2::text || '"'), 'UTF8') where subject = $1::text`, ids[i], at); err != nil {
			t.Fatal(err)
		}
	}
	l.Mend()
	s.run("orders", "o", "TZ=America/Adak", redisVia(l, "orders"))
	s.run("bonus", "b", "TZ=Asia/Kathmandu")
	s.run("mailer", "m", "TZ=America/Adak")
	analytics := s.run("analytics", "a", "TZ=Europe/Berlin")
	s.balanced(analytics, 0)
	days := func() string {
		var answer struct {
			Days []struct {
				Date   string `json:"date"`
				Orders int    `json:"orders"`
			} `json:"days"`
		}
		if err := s.get(analytics.url+"/stats", &answer); err != nil {
			t.Fatal(err)
		}
		text := map[string]int{}
		for _, d := range answer.Days {
			if d.Orders > 0 {
				text[d.Date] = d.Orders
			}
		}
		return fmt.Sprint(text)
	}
	const want = "map[2026-10-24:1 2026-10-25:3 2026-10-26:1]"
	if got := days(); got != want {
		t.Errorf("days %s, want %s", got, want)
	}
	s.term(analytics, 10*time.Second)
	s.again(s.entries()...)
	analytics = s.run("analytics", "a", "TZ=Asia/Tokyo")
	s.balanced(analytics, 0)
	if got := days(); got != want {
		t.Errorf("days %s after all came again elsewhere, want %s", got, want)
	}
}
