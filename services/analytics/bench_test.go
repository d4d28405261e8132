package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
)

// benchOrders makes n orders of today, of one to three of 1,000 articles, some of which sell much better than others, by
// 100,000 customers.
func benchOrders(b *testing.B, n int) []*broker.Delivery {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	popular := rand.NewZipf(r, 1.1, 10, 999)
	at := time.Now()
	out := make([]*broker.Delivery, n)
	for i := range out {
		o := event.OrderPlaced{ID: "0198a7c2-0000-7000-8000-000000000001", CustomerID: fmt.Sprintf("c-%d", r.IntN(100_000)), Currency: "EUR", CreatedAt: at}
		for range 1 + r.IntN(3) {
			item := event.Item{SKU: fmt.Sprintf("sku-%d", popular.Uint64()), Quantity: 1 + r.Int64N(3), UnitPrice: r.Int64N(10_000)}
			o.Items = append(o.Items, item)
			o.Total += item.Quantity * item.UnitPrice
		}
		out[i] = placed(b, idAt(at), o)
	}
	return out
}

// BenchmarkHandle is the handler alone, with batches of 100.
func BenchmarkHandle(b *testing.B) {
	s := newStore(b)
	ds := benchOrders(b, b.N)
	b.ResetTimer()
	for i := 0; i < len(ds); i += 100 {
		s.mustHandle(b, ds[i:min(i+100, len(ds))]...)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkService reads the stream as the service does.
func BenchmarkService(b *testing.B) {
	s := newStore(b)
	var n atomic.Int64
	benchConsume(b, s, func(ctx context.Context, ds []*broker.Delivery) error { return s.handle(ctx, ds) }, &n)
}

// BenchmarkNoHandler is the ceiling: the same stream, and a handler that does nothing.
func BenchmarkNoHandler(b *testing.B) {
	s := newStore(b)
	var n atomic.Int64
	benchConsume(b, s, func(context.Context, []*broker.Delivery) error { return nil }, &n)
}

func benchConsume(b *testing.B, s *store, handle broker.BatchHandler, n *atomic.Int64) {
	publish(b, s.client.Options(), benchOrders(b, b.N))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	done := make(chan struct{})
	c, err := redisstream.NewConsumer(s.client.Options(), redisstream.Config{
		Stream: "orders", Group: "analytics", Name: "bench", Logger: s.log,
		HandleBatch: func(ctx context.Context, ds []*broker.Delivery) error {
			err := handle(ctx, ds)
			if n.Add(int64(len(ds))) == int64(b.N) {
				close(done)
			}
			return err
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	b.ResetTimer()
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	cancel()
	<-ended
}
