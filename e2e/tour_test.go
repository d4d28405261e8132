package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestOneOrderThreeJobs: an order is answered, and there is a mail, a bonus and a changed statistic.
func TestOneOrderThreeJobs(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, bonus, analytics := s.run("orders", "o"), s.run("bonus", "b"), s.run("analytics", "a")
	s.run("mailer", "m")
	o := s.mustPost(orders, "c-42", 2)
	s.balanced(analytics, 0)
	var account struct {
		Balance int64 `json:"balance"`
		Entries []struct {
			OrderID string `json:"order_id"`
			Points  int64  `json:"points"`
		} `json:"entries"`
	}
	if err := s.get(bonus.url+"/customers/c-42/bonus", &account); err != nil {
		t.Fatal(err)
	}
	if account.Balance != 25 || len(account.Entries) != 1 || account.Entries[0].OrderID != o.ID || account.Entries[0].Points != 25 {
		t.Errorf("account %+v, want 25 points for order %s", account, o.ID)
	}
	for i, want := range []string{"miss", "hit"} {
		res, err := http.Get(orders.url + "/orders/" + o.ID)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("X-Cache"); got != want {
			t.Errorf("read %d: X-Cache %q, want %s", i, got, want)
		}
	}
}

// TestKillBeforeTheWork: the bonus service is killed before it commits. The entry stands in XPENDING, and the same consumer
// credits it once when it is back.
func TestKillBeforeTheWork(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("mailer", "m")
	bonus := s.run("bonus", "b", "HANDLER_DELAY=20s")
	s.mustPost(orders, "c-42", 2)
	s.eventually("bonus has it", func() bool { return s.pending("bonus") == 1 })
	s.kill(bonus)
	if n := s.count("select count(*) from bonus_ledger"); n != 0 {
		t.Errorf("%d ledger rows, want none yet", n)
	}
	if n := s.pending("bonus"); n != 1 {
		t.Errorf("%d pending, want the killed worker's entry", n)
	}
	again := s.run("bonus", "b")
	s.balanced(analytics, 0)
	if !again.log.has(`"outcome":"done"`, `"delivery":2`) {
		t.Errorf("no line says done with delivery 2:\n%s", again.log)
	}
}

// TestKillBeforeTheAck: the bonus service is killed between its commit and its XACK. The entry comes back, is found done, and
// credits nothing.
func TestKillBeforeTheAck(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("mailer", "m")
	bonus := s.run("bonus", "b", "ACK_DELAY=20s")
	s.mustPost(orders, "c-42", 2)
	s.eventually("the ledger has it", func() bool { return s.count("select count(*) from bonus_ledger") == 1 })
	s.kill(bonus)
	again := s.run("bonus", "other") // and it is another one that takes over
	s.balanced(analytics, 0)
	if !again.log.has(`"outcome":"duplicate"`, `"delivery":2`) {
		t.Errorf("no line says duplicate with delivery 2:\n%s", again.log)
	}
}

func (s *system) pending(group string) int64 {
	p, err := s.client.XPending(context.Background(), "orders", group).Result()
	if err != nil {
		return -1
	}
	return p.Count
}

// TestReplicas: 200 orders with three of bonus and two of mailer, one bonus killed and one stopped in between.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	b1, b2 := s.run("bonus", "b1"), s.run("bonus", "b2")
	s.run("bonus", "b3")
	s.run("mailer", "m1")
	s.run("mailer", "m2")
	for i := range 200 {
		s.mustPost(orders, fmt.Sprintf("c-%d", i%7), 1+i%5)
		switch i {
		case 70:
			s.kill(b1)
		case 120:
			s.term(b2, 10*time.Second)
		}
	}
	s.balanced(analytics, 0)
}

// TestRedisAway: orders are taken with 201 all the same, and their events go out when Redis is back, without a restart.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	s.mustPost(orders, "c-1", 1)
	s.balanced(analytics, 0)
	if err := s.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s.mustPost(orders, fmt.Sprintf("c-%d", i), 1)
	}
	if !orders.ready() {
		t.Error("orders is not ready, though it takes orders")
	}
	s.eventually("analytics says that it is not ready", func() bool { return !analytics.ready() })
	if err := s.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	s.balanced(analytics, 0)
	s.eventually("analytics is ready again", analytics.ready)
}

// TestPostgresAway: 503 with Retry-After; consumers wait, count nothing and bury nothing.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("mailer", "m")
	bonus := s.run("bonus", "b", "HANDLER_DELAY=1s")
	s.mustPost(orders, "c-1", 1)
	s.eventually("bonus has it", func() bool { return s.pending("bonus") == 1 })
	if err := s.postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	_, res, err := s.post(orders, "c-1", 1)
	if err == nil || res == nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, want 503 with Retry-After", err)
	}
	s.eventually("bonus says that it is not ready", func() bool { return !bonus.ready() })
	if err := s.postgres.Restart(); err != nil {
		t.Fatal(err)
	}
	s.eventually("orders are taken again", func() bool { _, _, err := s.post(orders, "c-1", 1); return err == nil })
	s.balanced(analytics, 0)
	if n := s.client.Exists(context.Background(), "{orders}:dead:bonus", "{orders}:fail:bonus").Val(); n != 0 {
		t.Error("an outage was counted against an entry")
	}
	s.eventually("bonus is ready again", bonus.ready)
}

// TestGarbage: what is no event goes to each group's dead letters and holds nothing up; an unknown type is skipped.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ctx := context.Background()
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	bonus := s.run("bonus", "b")
	s.run("mailer", "m")
	for _, values := range [][]string{
		{"x", "y"},
		{"payload", "{"},
		{"id", "1", "type", "order.placed.v1", "data", "{"},
		{"id", "2", "type", "order.placed.v1"},
		{"id", "01936b2e-7b1a-7c3d-9e4f-0123456789ab", "type", "order.placed.v1", "data", `{"total":9223372036854775808}`},
		{"id", "3", "type", "order.placed.v1", "data", strings.Repeat("x", 1<<20)},
	} {
		s.mustPost(orders, "c-1", 1)
		if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"order.cancelled.v1", "order.placed.v2"} {
		if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"id", "9", "type", kind, "data", "{}"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.mustPost(orders, "c-1", 1)
	s.balanced(analytics, 0)
	for _, group := range []string{"mailer", "bonus", "analytics"} {
		letters := s.client.XRange(ctx, "{orders}:dead:"+group, "-", "+").Val()
		if len(letters) != 6 {
			t.Errorf("%s: %d dead letters, want 6", group, len(letters))
			continue
		}
		for _, l := range letters {
			if l.Values["dead_reason"] == "" || l.Values["dead_entry_id"] == "" || l.Values["dead_error"] == "" {
				t.Errorf("%s: dead letter without its reason: %v", group, l.Values)
			}
		}
	}
	if !bonus.log.has(`"outcome":"skipped"`) {
		t.Error("no line says skipped")
	}
}

// TestDrain: SIGTERM under load ends every service with 0, and what it had is done by those that come after.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders := s.run("orders", "o")
	bonus, mailer, analytics := s.run("bonus", "b"), s.run("mailer", "m"), s.run("analytics", "a")
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if _, _, err := s.post(orders, fmt.Sprintf("c-%d-%d", c, i), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	s.eventually("some are done", func() bool { return s.count("select count(*) from bonus_ledger") > 20 })
	for _, in := range []*instance{bonus, mailer, analytics} {
		s.term(in, 10*time.Second)
	}
	wg.Wait()
	s.term(orders, 10*time.Second)
	s.run("orders", "o2")
	s.run("bonus", "b2")
	s.run("mailer", "m2")
	s.balanced(s.run("analytics", "a2"), 0)
}
