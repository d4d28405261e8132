package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/smtpsink"
)

// TestF06KilledWhileSending: a mailer dies in the middle of a mail. It comes back under its name or another, and the mail
// goes out without help, within the claim time and ten seconds.
func TestF06KilledWhileSending(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	begun, killed := make(chan bool, 1), make(chan bool)
	var hang atomic.Bool
	smtp := s.smtp(func(_ int, _ string, take func() error) error {
		if hang.CompareAndSwap(true, false) {
			begun <- true
			<-killed
			return smtpsink.ErrCut
		}
		return take()
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", smtp)
	for i, name := range []string{"m", "other"} {
		hang.Store(true)
		s.mustPost(orders, "c-1", 1)
		s.receive("a mail is on its way", begun)
		s.kill(mailer)
		killed <- true
		mailer = s.launch("mailer", name, smtp)
		s.within(11*time.Second, "the mail is out", func() bool { n, _ := s.mailCount(); return n == i+1 })
	}
	s.balanced(analytics, 0)
	s.blameless()
}

// TestF08WaitingIsNotIdle: entries that wait for their turn longer than the claim time, with another worker who would take
// them, are run once. One slow mail holds nobody up.
func TestF08WaitingIsNotIdle(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	snail := make(chan bool)
	smtp := s.smtp(func(_ int, to string, take func() error) error {
		switch to {
		case "snail@example.com":
			<-snail
		case "quick@example.com":
		default:
			time.Sleep(time.Second) // the server's own
		}
		return take()
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	m1 := s.run("mailer", "m1", smtp, "CONCURRENCY=1")
	m2 := s.run("mailer", "m2", smtp, "CONCURRENCY=1")
	s.postMany(orders, 20)
	s.balanced(analytics, 0)
	for _, in := range []*instance{m1, m2} {
		if !in.log.has(`"outcome":"done"`) {
			t.Errorf("%s did nothing", in.name)
		}
	}
	s.mustPost(orders, "snail", 1)
	s.eventually("the slow one is on its way", func() bool { return s.pending("mailer") == 1 })
	for range 5 {
		s.mustPost(orders, "quick", 1)
	}
	s.eventually("the others have their mail", func() bool { n, _ := s.mailCount(); return n == 25 })
	close(snail)
	s.balanced(analytics, 0)
	s.blameless()
}

// TestF09LongWork: a mail that takes three times the claim time stays with its owner and is sent once. Where its owner is
// killed, the other takes over within about the claim time.
func TestF09LongWork(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	begun, killed := make(chan bool, 1), make(chan bool)
	smtp := s.smtp(func(n int, _ string, take func() error) error {
		switch n {
		case 1:
			time.Sleep(6 * time.Second) // the server's own
		case 2:
			begun <- true
			<-killed
			return smtpsink.ErrCut
		}
		return take()
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	const claim = "CLAIM_IDLE=2s"
	mailers := map[string]*instance{"m1": s.run("mailer", "m1", smtp, claim), "m2": s.run("mailer", "m2", smtp, claim)}
	s.mustPost(orders, "c-1", 1)
	var first string
	s.eventually("somebody has it", func() bool { first, _ = s.owner(); return first != "" })
	s.eventually("it is done", func() bool {
		owner, idle := s.owner()
		if owner != "" && (owner != first || idle >= 2*time.Second) {
			t.Fatalf("the entry is %s's and idle for %s, want %s's and renewed", owner, idle, first)
		}
		return owner == ""
	})
	s.balanced(analytics, 0)

	s.mustPost(orders, "c-2", 1)
	s.receive("a mail is on its way", begun)
	owner, _ := s.owner()
	if mailers[owner] == nil {
		t.Fatalf("the entry is %q's", owner)
	}
	s.kill(mailers[owner])
	killed <- true
	s.within(8*time.Second, "the other has sent it", func() bool { n, _ := s.mailCount(); return n == 2 })
	s.balanced(analytics, 0)
	s.blameless()
}

// owner is who has the oldest entry of the mailers, and for how long it was idle.
func (s *system) owner() (string, time.Duration) {
	p, err := s.client.XPendingExt(context.Background(), &redis.XPendingExtArgs{Stream: "orders", Group: "mailer", Start: "-", End: "+", Count: 1}).Result()
	if err != nil || len(p) == 0 {
		return "", 0
	}
	return p[0].Consumer, p[0].Idle
}

// TestF11OwnersThatEnd: what a dead worker owns is done by others, and so is what a worker still owns when it is told to stop.
// No consumer is dropped with its entries. (That old consumers are removed, and only empty ones, is shown beside the code:
// ConsumerExpiry is no setting of the services.)
func TestF11OwnersThatEnd(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	var busy atomic.Bool
	smtp := s.smtp(func(_ int, _ string, take func() error) error {
		if busy.Load() {
			return smtpsink.Reply(451, "later")
		}
		return take()
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	mailer := s.run("mailer", "m", smtp, "RETRY_MIN=4s")
	s.term(s.run("bonus", "b"), 10*time.Second)
	for range 5 {
		s.mustPost(orders, "c-1", 1)
	}
	s.eventually("all are in the stream", func() bool { return len(s.entries()) == 5 })
	s.ghost("bonus", 5)
	s.run("bonus", "b")
	s.balanced(analytics, 0)

	busy.Store(true)
	s.postMany(orders, 10)
	s.eventually("ten mails wait for their retry", func() bool { return strings.Count(mailer.log.String(), `"outcome":"retry"`) == 10 })
	s.term(mailer, 10*time.Second)
	given, err := s.client.XPendingExt(context.Background(), &redis.XPendingExtArgs{Stream: "orders", Group: "mailer", Start: "-", End: "+", Count: 100}).Result()
	if err != nil || len(given) != 10 {
		t.Fatalf("%d pending, want ten: %v", len(given), err)
	}
	for _, p := range given {
		if p.Idle < time.Second {
			t.Errorf("%s is idle for %s, want it given back for others to take at once", p.ID, p.Idle)
		}
	}
	busy.Store(false)
	s.run("mailer", "m2", smtp)
	s.balanced(analytics, 0)
	for _, g := range groups {
		for _, c := range s.client.XInfoConsumers(context.Background(), "orders", g).Val() {
			if c.Pending != 0 {
				t.Errorf("%s of %s has %d pending", c.Name, g, c.Pending)
			}
		}
	}
	s.blameless()
}

// TestF12Restarts: thirty starts of each service, half after a kill, under load: the groups have as many consumers as
// there are workers, and every order is done once.
func TestF12Restarts(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	const one = "CONCURRENCY=1" // so that a killed mailer has one mail on its way
	f := s.runAll(one)
	stop := s.load(f.orders, 20*time.Millisecond)
	for i := range 30 {
		for _, in := range []**instance{&f.bonus, &f.analytics, &f.mailer} {
			if i%2 == 0 {
				s.kill(*in)
			} else {
				s.term(*in, 10*time.Second)
			}
			*in = s.launch((*in).service, (*in).name, one)
		}
		for _, in := range f.consumers() {
			s.eventually(in.service+" is ready", in.ready)
		}
	}
	stop()
	s.balanced(f.analytics, 15) // one a killed mailer
	s.blameless()
	for _, g := range groups {
		if c := s.client.XInfoConsumers(context.Background(), "orders", g).Val(); len(c) > 3 {
			t.Errorf("%s has %d consumers for one worker", g, len(c))
		}
	}
}

// TestF14PoisonKills: an order on which the mailer dies each time. It ends in the dead letters after a bounded number of
// deliveries, others are done meanwhile, and once the cause is gone it is redriven.
func TestF14PoisonKills(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	died, dead := make(chan bool), make(chan bool)
	var healed atomic.Bool
	smtp := s.smtp(func(_ int, to string, take func() error) error {
		if to == "poison@example.com" && !healed.Load() {
			died <- true
			<-dead
			return smtpsink.ErrCut
		}
		return take()
	})
	const most = 4
	env := []string{smtp, "CONCURRENCY=2", fmt.Sprint("MAX_DELIVERIES=", most)}
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", env...)
	s.mustPost(orders, "poison", 1)
	s.postMany(orders, 20)
	deaths := 0
	letters := func() int64 { return s.client.XLen(context.Background(), "{orders}:dead:mailer").Val() }
	s.eventually("it is a dead letter", func() bool {
		select {
		case <-died:
			s.kill(mailer)
			dead <- true
			deaths++
			mailer = s.launch("mailer", "m", env...)
		default:
		}
		return letters() == 1
	})
	if deaths != most {
		t.Errorf("it took %d deaths, want %d", deaths, most)
	}
	s.eventually("all is settled", s.settled)
	if n, again := s.mailCount(); n-again != 20 || letters() != 1 {
		t.Errorf("%d mails with %d repeats and %d dead letters, want the 20 others' mails and one letter", n, again, letters())
	}
	healed.Store(true)
	s.mustFanout("dead", "redrive", "-g", "mailer", "--all", "--yes")
	s.balanced(analytics, deaths) // a neighbour may have been on its way
}

// TestF14HealthyIsNotBlamed: a good order whose mailer is killed more often than an entry may fail is delivered all the same.
func TestF14HealthyIsNotBlamed(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	died, dead := make(chan bool), make(chan bool)
	var kills atomic.Int64
	smtp := s.smtp(func(_ int, _ string, take func() error) error {
		if kills.Add(1) <= 5 {
			died <- true
			<-dead
			return smtpsink.ErrCut
		}
		return take()
	})
	env := []string{smtp, "MAX_ATTEMPTS=3"}
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", env...)
	s.mustPost(orders, "c-1", 1)
	for range 5 {
		s.receive("the mail is tried", died)
		s.kill(mailer)
		dead <- true
		mailer = s.launch("mailer", "m", env...)
	}
	s.balanced(analytics, 0)
	s.blameless()
	if !mailer.log.has(`"outcome":"done"`, `"attempt":1`, `"delivery":6`) {
		t.Errorf("no line says that the sixth delivery was the first attempt:\n%s", mailer.log)
	}
}
