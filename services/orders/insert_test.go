package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
)

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	setPool(cfg, url)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newTestPlacement(t testing.TB, customer, key string) *placement {
	t.Helper()
	req := &orderRequest{CustomerID: customer, Email: "ada@example.com", Currency: "EUR", Items: []event.Item{{SKU: "tea-100", Quantity: 2, UnitPrice: 1250}, {SKU: "cup", Quantity: 1, UnitPrice: 900}}}
	p, err := newPlacement(context.Background(), req, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestInsertSeveral stores several orders in one statement. Of two with one key the first is stored.
func TestInsertSeveral(t *testing.T) {
	t.Parallel()
	owner := servertest.Database(t)
	pool := newPool(t, servertest.DatabaseAs(t, owner, "orders"))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ps := []*placement{newTestPlacement(t, "a", ""), newTestPlacement(t, "a", "k"), newTestPlacement(t, "a", "k"), newTestPlacement(t, "b", "k"), newTestPlacement(t, "a", "")}
	out, err := insertOrders(t.Context(), conn, ps)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(out), "[{true true} {true true} {true false} {true true} {true true}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := &store{pool: pool}
	for i, p := range ps {
		data, err := s.order(t.Context(), p.id)
		if (err == nil) != out[i].placed || err == nil && string(data) != string(p.data) {
			t.Errorf("order %d: %s, %v", i, data, err)
		}
	}
	// The events are in the order of the requests.
	var inOrder bool
	err = pool.QueryRow(t.Context(), `select array_agg(subject order by id) = $1::text[] from outbox`,
		[]string{ps[0].order.ID, ps[1].order.ID, ps[3].order.ID, ps[4].order.ID}).Scan(&inOrder)
	if err != nil || !inOrder {
		t.Errorf("the events are in another order, %v", err)
	}
	// All or none.
	fresh := newTestPlacement(t, "c", "")
	if _, err := insertOrders(t.Context(), conn, []*placement{fresh, ps[0]}); !isDuplicate(err) {
		t.Errorf("an order that is there already: %v", err)
	}
	if _, err := s.order(t.Context(), fresh.id); err != errNotFound {
		t.Errorf("its neighbour: %v", err)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, bench := range []struct {
		name string
		key  bool
		par  int
	}{{"one", false, 1}, {"keyed", true, 1}, {"16", false, 8}} {
		b.Run(bench.name, func(b *testing.B) {
			owner := servertest.Database(b)
			s := &store{pool: newPool(b, servertest.DatabaseAs(b, owner, "orders"))}
			var n atomic.Int64
			place := func() {
				key := ""
				if bench.key {
					key = fmt.Sprint("k", n.Add(1))
				}
				if _, err := s.place(context.Background(), newTestPlacement(b, "c-42", key)); err != nil {
					b.Error(err)
				}
			}
			place()
			b.ReportAllocs()
			b.ResetTimer()
			start := time.Now()
			if bench.par == 1 {
				for range b.N {
					place()
				}
			} else {
				b.SetParallelism(bench.par)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						place()
					}
				})
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "orders/s")
		})
	}
}
