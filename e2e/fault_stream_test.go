package e2e

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestF02GroupGone: the stream vanishes with its groups, and a new order makes it again without them. The workers make
// their groups again, and stay calm.
func TestF02GroupGone(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	f := s.runAll()
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	calm := s.calm(f.analytics, f.mailer)
	if err := s.client.Del(ctx, "orders").Err(); err != nil {
		t.Fatal(err)
	}
	s.mustPost(f.orders, "c-1", 2)
	s.balanced(f.analytics, 0)
	// Once more, for those that take over: what a dead worker held is gone with its group, and the relay sends it again.
	s.term(f.bonus, 10*time.Second)
	s.mustPost(f.orders, "c-2", 1)
	s.eventually("it is in the stream", func() bool {
		return len(s.entries()) > 0 && s.count("select count(*) from outbox where published_at is null") == 0
	})
	s.ghost("bonus", 1)
	if err := s.client.Del(ctx, "orders").Err(); err != nil {
		t.Fatal(err)
	}
	s.run("bonus", "b2")
	s.eventually("the lost order is credited", func() bool { return s.count("select count(*) from bonus_ledger") == 3 })
	s.balanced(f.analytics, 0)
	s.blameless()
	calm()
}

// TestF02Evicting: a Redis that may evict the stream is named by all who need it, and they are not ready.
func TestF02Evicting(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	if err := s.client.ConfigSet(context.Background(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	f := s.launchAll()
	for _, in := range f.consumers() {
		s.eventually(in.service+" warns", func() bool {
			in.ready()
			return in.log.has(`"level":"WARN"`, "maxmemory-policy allkeys-lru")
		})
		if in.ready() {
			t.Errorf("%s is ready on a Redis that evicts", in.service)
		}
	}
	s.eventually("orders warns", func() bool {
		f.orders.ready()
		return f.orders.log.has(`"level":"WARN"`, "maxmemory-policy allkeys-lru")
	})
	if err := s.client.ConfigSet(context.Background(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	for _, in := range f.all() {
		s.eventually(in.service+" is ready", in.ready)
	}
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
}

// TestF03StartOfAGroup: what was placed before the workers came for the first time is done. A group that is lost and reads
// all again does nothing twice.
func TestF03StartOfAGroup(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	orders := s.run("orders", "o")
	for range 5 {
		s.mustPost(orders, "c-1", 1)
	}
	s.eventually("all are in the stream", func() bool { return len(s.entries()) == 5 })
	analytics, bonus, mailer := s.run("analytics", "a"), s.run("bonus", "b"), s.run("mailer", "m")
	s.balanced(analytics, 0)
	for _, g := range groups {
		if err := s.client.XGroupDestroy(ctx, "orders", g).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("all is read again", func() bool {
		for _, in := range []*instance{analytics, bonus, mailer} {
			if strings.Count(in.log.String(), `"outcome":"duplicate"`) != 5 {
				return false
			}
		}
		return true
	})
	s.balanced(analytics, 0)
	s.blameless()
}
