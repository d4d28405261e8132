package e2e

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/smtpsink"
)

// TestF15SlowGroup: one group is away while the stream is trimmed by age. Nothing that it has not read goes, it is named,
// the others are not held up, and once it is back all is counted and trimmed.
func TestF15SlowGroup(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll("STREAM_RETENTION=1s")
	s.term(f.analytics, 10*time.Second)
	s.postMany(f.orders, 300)
	s.within(20*time.Second, "the others are done", func() bool {
		mails, _ := s.mailCount()
		return mails == 300 && s.count("select count(*) from bonus_ledger") == 300
	})
	s.eventually("the group is named", func() bool {
		n, ok := f.orders.metric("orderfanout_trim_blocked", "analytics")
		return ok && n == 1
	})
	if n := len(s.entries()); n != 300 {
		t.Errorf("%d entries are left of 300 that analytics has not read", n)
	}
	f.analytics = s.run("analytics", "a")
	s.balanced(f.analytics, 0)
	s.eventually("the stream is trimmed", func() bool { return len(s.entries()) == 0 })
	s.balanced(f.analytics, 0)
}

// TestF17NothingGrows: thousands of finished orders are trimmed, though there is a group that nobody reads; it is named. The
// dead letters stay, and are counted.
func TestF17NothingGrows(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	f := s.runAll("STREAM_RETENTION=1s")
	if err := s.client.XGroupCreate(ctx, "orders", "forgotten", "0").Err(); err != nil {
		t.Fatal(err)
	}
	const poison, entryMost = 500, 1000
	pipe := s.client.Pipeline()
	for range poison {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"x", "y"}})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	s.postMany(f.orders, 2000)
	s.eventually("the stream is short", func() bool { return len(s.entries()) < entryMost })
	s.eventually("all is done", func() bool {
		mails, _ := s.mailCount()
		return mails == 2000 && s.count("select count(*) from bonus_ledger") == 2000 && s.pending("analytics") == 0
	})
	s.eventually("the stream is empty", func() bool { return len(s.entries()) == 0 })
	if n := s.client.MemoryUsage(ctx, "orders").Val(); n > 64<<10 {
		t.Errorf("the empty stream takes %d bytes", n)
	}
	if n, _ := f.orders.metric("orderfanout_trim_unknown_groups"); n != 1 || !f.orders.log.has(`"level":"WARN"`, "forgotten") {
		t.Errorf("%v groups that nobody configured, want the forgotten one, named in a warning", n)
	}
	for _, in := range f.consumers() {
		if n := s.client.XLen(ctx, "{orders}:dead:"+in.service).Val(); n != poison {
			t.Errorf("%s: %d dead letters, want %d", in.service, n, poison)
		}
		n, _ := in.metric("orderfanout_dead_letters")
		age, _ := in.metric("orderfanout_dead_letters_oldest_seconds")
		if n != poison || age <= 0 {
			t.Errorf("%s tells of %v dead letters since %v s", in.service, n, age)
		}
	}
	if err := s.client.XGroupDestroy(ctx, "orders", "forgotten").Err(); err != nil {
		t.Fatal(err)
	}
	s.balanced(f.analytics, 0)
}

// TestF23IDFromTheFuture: the stream's ids have run ahead of every clock. Orders are published and done all the same, also by
// the way of a retry and of a dead worker, no age is below zero, and the stream is trimmed, but not what is unread.
func TestF23IDFromTheFuture(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll("STREAM_RETENTION=1s", "RETRY_MIN=100ms")
	s.term(f.mailer, 10*time.Second)
	smtp := s.smtp(func(n int, _ string, take func() error) error {
		if n%2 == 0 {
			return smtpsink.Reply(451, "later")
		}
		return take()
	})
	f.mailer = s.run("mailer", "m", smtp, "RETRY_MIN=100ms", "MAX_ATTEMPTS=50")
	s.mustPost(f.orders, "c-1", 1)
	s.eventually("all is settled", s.settled)
	s.addAs("99999999999999-0", s.entries()[0]) // the same event again
	s.term(f.bonus, 10*time.Second)
	for range 10 {
		s.mustPost(f.orders, "c-1", 1)
	}
	s.eventually("all are published", func() bool { return s.count("select count(*) from outbox where published_at is null") == 0 })
	s.eventually("bonus keeps them from being trimmed", func() bool {
		n, ok := f.orders.metric("orderfanout_trim_blocked", "bonus")
		return ok && n == 1
	})
	s.ghost("bonus", 8)
	f.bonus = s.run("bonus", "b")
	for _, in := range f.consumers() {
		for _, name := range []string{"orderfanout_group_lag", "orderfanout_group_oldest_unread_seconds", "orderfanout_group_oldest_pending_seconds"} {
			if n, ok := in.metric(name); !ok || n < 0 || math.IsNaN(n) {
				t.Errorf("%s of %s is %v, %t", name, in.service, n, ok)
			}
		}
	}
	s.balanced(f.analytics, 0)
	s.eventually("the stream is trimmed", func() bool { return len(s.entries()) == 0 })
	s.blameless()
}
