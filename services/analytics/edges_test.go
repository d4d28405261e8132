package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// Revenue is exact up to 2^63-1, and what would pass it is refused alone and changes nothing.
func TestRevenueEdges(t *testing.T) {
	t.Parallel()
	for _, start := range []int64{1<<53 - 1_000_003, 999_999_999_999_999_999, math.MaxInt64 - 1_000_003} {
		s := newStore(t)
		s.do(t, "HSET", totalsKey, "revenue:EUR", start)
		s.mustHandle(t, now(t, "c", "EUR", "a", 1, 1_000_003))
		if got := s.mustStats(t).Revenue["EUR"]; got != start+1_000_003 {
			t.Errorf("%d + 1000003 = %d", start, got)
		}
	}

	s := newStore(t)
	s.do(t, "HSET", totalsKey, "revenue:EUR", int64(math.MaxInt64-10))
	tooMuch, fits := now(t, "c1", "EUR", "a", 1, 11), now(t, "c2", "EUR", "a", 1, 10)
	before := s.dump(t)
	err := s.handle(t.Context(), []*broker.Delivery{tooMuch, fits})
	if err == nil || broker.IsUnavailable(err) || broker.IsPermanent(err) {
		t.Errorf("batch: %v, want an error that runs each alone", err)
	}
	if err := s.handle(t.Context(), []*broker.Delivery{tooMuch}); !broker.IsPermanent(err) || !errors.Is(err, errOverflow) {
		t.Errorf("alone: %v", err)
	}
	if after := s.dump(t); after != before {
		t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
	}
	s.mustHandle(t, fits)
	if got := s.mustStats(t); got.Revenue["EUR"] != math.MaxInt64 || got.Orders != 1 {
		t.Errorf("statistics %+v", got)
	}
}

// Quantities are exact up to 2^53-1; an article that is full keeps no other from being counted.
func TestQuantityEdges(t *testing.T) {
	t.Parallel()
	const most = 1<<53 - 1
	s := newStore(t)
	s.do(t, "ZADD", skusKey, fmt.Sprint(-(most - 5)), "a")
	s.mustHandle(t, now(t, "c", "EUR", "a", 4, 1))
	s.mustHandle(t, now(t, "c", "EUR", "a", 1, 1))
	before := s.dump(t)
	if err := s.handle(t.Context(), []*broker.Delivery{now(t, "c", "EUR", "a", 1, 1)}); !broker.IsPermanent(err) || !errors.Is(err, errOverflow) {
		t.Errorf("got %v", err)
	}
	if after := s.dump(t); after != before {
		t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
	}
	s.mustHandle(t, now(t, "c", "EUR", "b", 1, 1))
	if got := s.mustStats(t).TopSKUs; fmt.Sprint(got) != fmt.Sprintf("[{a %d} {b 1}]", int64(most)) {
		t.Errorf("top %v", got)
	}
}

func TestCustomersUpToTenThousandAreExact(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	customers := func(from, to int) {
		var batch []*broker.Delivery
		for i := from; i < to; i++ {
			batch = append(batch, now(t, fmt.Sprintf("c-%d", i), "EUR", "a", 1, 1))
		}
		s.mustHandle(t, batch...)
	}
	customers(0, 9_999)
	customers(0, 50)
	if got := s.mustStats(t); got.Customers != 9_999 || got.CustomersEstimated {
		t.Errorf("%d, estimated %t; want 9999, exact", got.Customers, got.CustomersEstimated)
	}
	customers(9_999, 10_000)
	if got := s.mustStats(t); got.Customers != 10_000 || got.CustomersEstimated {
		t.Errorf("%d, estimated %t; want 10000, exact", got.Customers, got.CustomersEstimated)
	}
	customers(10_000, 10_001)
	if got := s.mustStats(t); got.Customers < 10_001 || got.Customers > 10_400 || !got.CustomersEstimated {
		t.Errorf("%d, estimated %t; want some 10001, estimated", got.Customers, got.CustomersEstimated)
	}
	if s.client.Exists(t.Context(), customersKey).Val() != 0 {
		t.Error("the set is still kept")
	}
	customers(10_001, 15_000)
	customers(0, 3_000)
	if got := s.mustStats(t); got.Customers < 14_500 || got.Customers > 15_500 || !got.CustomersEstimated {
		t.Errorf("%d, estimated %t; want some 15000, estimated", got.Customers, got.CustomersEstimated)
	}
	if s.client.Exists(t.Context(), customersKey).Val() != 0 {
		t.Error("the set is back")
	}
}

// dump shows all keys with their values.
func (s *store) dump(t *testing.T) string {
	t.Helper()
	keys, err := s.client.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string) // printed in the order of its keys
	for _, key := range keys {
		v, err := s.client.Dump(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		out[key] = v
	}
	return fmt.Sprintf("%q", out)
}

// Whatever Redis refuses, nothing is half written, nobody is blamed, and the batch counts once it is over.
func TestRedisMoods(t *testing.T) {
	t.Parallel()
	for name, mood := range map[string]struct{ begin, end []any }{
		"OOM":         {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		"NOREPLICAS":  {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":    {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"totals":      {[]any{"SET", totalsKey, "x"}, []any{"DEL", totalsKey}},
		"amount":      {[]any{"HSET", totalsKey, "revenue:EUR", "x"}, []any{"DEL", totalsKey}},
		"skus":        {[]any{"SET", skusKey, "x"}, []any{"DEL", skusKey}},
		"customers":   {[]any{"SET", customersKey, "x"}, []any{"DEL", customersKey}},
		"sketch":      {[]any{"SET", sketchKey, "x"}, []any{"DEL", sketchKey}},
		"sketch list": {[]any{"RPUSH", sketchKey, "x"}, []any{"DEL", sketchKey}},
		"days":        {[]any{"SET", daysKey, "x"}, []any{"DEL", daysKey}},
		"day":         {[]any{"SET", dayPrefix + "2026-01-02", "x"}, []any{"DEL", dayPrefix + "2026-01-02"}},
		"marker":      {[]any{"SET", markerPrefix + time.Now().UTC().Format("2006-01-02"), "x"}, []any{"DEL", markerPrefix + time.Now().UTC().Format("2006-01-02")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			batch := []*broker.Delivery{
				placed(t, idAt(time.Now()), order("c1", "EUR", "a", 1, 1, at)), placed(t, idAt(time.Now()), order("c2", "USD", "b", 2, 2, at)),
			}
			s.do(t, mood.begin...)
			before := s.dump(t)
			if err := s.handle(t.Context(), batch); !broker.IsUnavailable(err) {
				t.Errorf("got %v", err)
			}
			if after := s.dump(t); after != before {
				t.Errorf("something was written:\n%s\nbefore:\n%s", after, before)
			}
			s.do(t, mood.end...)
			m := newModel()
			for _, d := range batch {
				m.add(t, d)
			}
			s.mustHandle(t, batch...)
			m.check(t, s)
		})
	}
}

// Redis is away altogether, or has forgotten its scripts.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.mustHandle(t, now(t, "c", "EUR", "a", 1, 1))
	s.do(t, "SCRIPT", "FLUSH")
	s.mustHandle(t, now(t, "c", "EUR", "a", 1, 1))
	_ = s.client.ShutdownNoSave(t.Context()).Err() // it closes the connection instead of answering
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.handle(ctx, []*broker.Delivery{now(t, "c", "EUR", "a", 1, 1)}); !broker.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
}
