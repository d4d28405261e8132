package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/processed"
)

// benchBatches makes n orders of 10,000 customers, in batches of 100.
func benchBatches(b *testing.B, n int) [][]*broker.Delivery {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	ds := make([]*broker.Delivery, n)
	for i := range ds {
		ds[i] = placed(b, customer(r.IntN(10_000)), r.Int64N(100_000))
	}
	return slices.Collect(slices.Chunk(ds, 100))
}

func report(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "credits/s") }

// BenchmarkHandle is the handler with batches of 100.
func BenchmarkHandle(b *testing.B) {
	w := newWorld(b)
	batches := benchBatches(b, b.N)
	b.ResetTimer()
	for _, batch := range batches {
		w.mustHandle(b, batch...)
	}
	report(b)
}

// BenchmarkStatement is the ceiling: the handler's statement with the values at hand.
func BenchmarkStatement(b *testing.B) {
	w := newWorld(b)
	var args [][]any
	for _, batch := range benchBatches(b, b.N) {
		n := len(batch)
		eventIDs, orderIDs, customerIDs, points := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
		for i, d := range batch {
			c, err := newCredit(d.Event)
			if err != nil {
				b.Fatal(err)
			}
			eventIDs[i], orderIDs[i], customerIDs[i], points[i] = c.eventID, c.orderID, c.customerID, c.points
		}
		args = append(args, []any{consumer, eventIDs, orderIDs, customerIDs, points})
	}
	b.ResetTimer()
	for _, a := range args {
		if _, err := w.store.pool.Exec(b.Context(), creditSQL, a...); err != nil {
			b.Fatal(err)
		}
	}
	report(b)
}

// BenchmarkSteps is the same work in a transaction of four round trips: begin, claim, work, commit.
func BenchmarkSteps(b *testing.B) {
	w := newWorld(b)
	batches := benchBatches(b, b.N)
	b.ResetTimer()
	for _, batch := range batches {
		if err := w.creditInSteps(b, batch); err != nil {
			b.Fatal(err)
		}
	}
	report(b)
}

// BenchmarkOne is the handler with one event at a time, as after a failed batch.
func BenchmarkOne(b *testing.B) {
	w := newWorld(b)
	batches := benchBatches(b, b.N)
	b.ResetTimer()
	for _, batch := range batches {
		for _, d := range batch {
			w.mustHandle(b, d)
		}
	}
	report(b)
}

func (w *world) creditInSteps(b *testing.B, batch []*broker.Delivery) error {
	credits := make(map[string]credit)
	var ids []string
	for _, d := range batch {
		c, err := newCredit(d.Event)
		if err != nil {
			return err
		}
		credits[d.ID] = c
		ids = append(ids, d.ID)
	}
	return pgx.BeginFunc(b.Context(), w.store.pool, func(tx pgx.Tx) error {
		fresh, err := processed.Claim(b.Context(), tx, consumer, ids)
		if err != nil {
			return err
		}
		var orderIDs, customerIDs []string
		var points []int64
		for _, id := range fresh {
			c := credits[id]
			orderIDs, customerIDs, points = append(orderIDs, c.orderID), append(customerIDs, c.customerID), append(points, c.points)
		}
		_, err = tx.Exec(b.Context(), `
			with ledger as (
				insert into bonus_ledger (event_id, order_id, customer_id, points)
				select event_id, order_id, customer_id, points
				from unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[]) as c (event_id, order_id, customer_id, points)
				on conflict (event_id) do nothing
				returning customer_id, points
			)
			insert into bonus_accounts as a (customer_id, balance)
			select customer_id, sum(points)::bigint from ledger group by customer_id order by customer_id
			on conflict (customer_id) do update set balance = a.balance + excluded.balance`,
			fresh, orderIDs, customerIDs, points)
		return err
	})
}
