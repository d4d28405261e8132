package main

import (
	"context"
	"fmt"
	"sync"
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

// newRunningStore returns a store with a pool and a writer of its own.
func newRunningStore(t testing.TB, url string) *store {
	t.Helper()
	s := newStore(newPool(t, url))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		s.writer.run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
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
	s := newStore(pool)
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

// TestGroup has many orders wait for the writer: they share a statement, and one that Postgres refuses fails alone.
func TestGroup(t *testing.T) {
	t.Parallel()
	owner := servertest.Database(t)
	s := newRunningStore(t, servertest.DatabaseAs(t, owner, "orders"))
	admin := newPool(t, owner)
	there := newTestPlacement(t, "c-there", "")
	if _, err := s.place(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	const each = 50
	for round, bad := range []int{-1, each / 2} {
		tx := hold(t, admin, `lock table orders in exclusive mode`)
		var wg sync.WaitGroup
		place := func(n int) {
			p := newTestPlacement(t, "c", "")
			if n == bad {
				p.id = there.id // a duplicate that is no repetition
			}
			wg.Go(func() {
				got, err := s.place(t.Context(), p)
				switch {
				case n == bad && !isDuplicate(err):
					t.Errorf("the duplicate: %v, %v", got, err)
				case n != bad && (err != nil || got.id != p.order.ID || got.replayed):
					t.Errorf("order %d: %v, %v", n, got, err)
				}
			})
		}
		place(0) // gives the writer something to do, so that the rest has to wait
		eventually(t, "the writer is busy", func() bool {
			var busy int
			err := admin.QueryRow(t.Context(), `select count(*) from pg_locks where not granted and relation = 'orders'::regclass`).Scan(&busy)
			return err == nil && busy == 1
		})
		for n := 1; n < each; n++ {
			place(n)
		}
		eventually(t, "the others wait", func() bool { return len(s.writer.queue) == each-1 })
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		var orders, transactions int
		err := admin.QueryRow(t.Context(), `select count(*), count(distinct xmin::text) from orders where customer_id = 'c'`).Scan(&orders, &transactions)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 && (orders != each || transactions != 2) {
			t.Errorf("%d orders in %d transactions, want %d in 2", orders, transactions, each)
		}
		if round == 1 && orders != 2*each-1 {
			t.Errorf("%d orders, want %d", orders, 2*each-1)
		}
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	w := newWriter(nil) // nobody works at its queue
	var group []*waiting
	for range groupSize + 5 {
		group = append(group, &waiting{p: newTestPlacement(t, "c", ""), done: make(chan struct{})})
	}
	group[3].taken.Store(true) // its request has given up
	for _, one := range group[1:] {
		w.queue <- one
	}
	if got := w.take(group[0]); len(got) != groupSize || got[3] != group[4] {
		t.Errorf("took %d", len(got))
	}
	if got := w.take(<-w.queue); len(got) != 4 {
		t.Errorf("then took %d", len(got))
	}
	// A request whose time is over while it waits was surely not stored.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.place(ctx, newTestPlacement(t, "c", "")); faultOf(err) != away {
		t.Errorf("given up: %v", err)
	}
	// One whose time is over after the writer has taken it may have been.
	ctx, cancel = context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := w.place(ctx, newTestPlacement(t, "c", ""))
		failed <- err
	}()
	for len(w.take(<-w.queue)) == 0 { // the one that was given up
	}
	cancel()
	if err := <-failed; faultOf(err) != unclear {
		t.Errorf("given up on its way: %v", err)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, bench := range []struct {
		name string
		key  bool
		par  int
	}{{"one", false, 1}, {"keyed", true, 1}, {"64", false, 32}} {
		b.Run(bench.name, func(b *testing.B) {
			owner := servertest.Database(b)
			s := newRunningStore(b, servertest.DatabaseAs(b, owner, "orders"))
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
