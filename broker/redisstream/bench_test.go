package redisstream

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// BenchmarkConsume works off a backlog with a handler that does nothing; BenchmarkBare is the ceiling: XREADGROUP with
// COUNT 100 and one XACK for each answer, on the same entries.
func BenchmarkConsume(b *testing.B) {
	w := newWorld(b)
	fill(w, b.N)
	var n atomic.Int64
	done := make(chan struct{})
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if n.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	b.ReportAllocs()
	b.ResetTimer()
	stop := w.start(cfg)
	<-done
	stop()
	b.StopTimer()
	if w.pending() != 0 {
		b.Fatal("entries are pending")
	}
}

func BenchmarkConsumeBatch(b *testing.B) {
	w := newWorld(b)
	fill(w, b.N)
	var n atomic.Int64
	done := make(chan struct{})
	cfg := w.config(nil)
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
		if n.Add(int64(len(ds))) == int64(b.N) {
			close(done)
		}
		return nil
	}
	b.ReportAllocs()
	b.ResetTimer()
	stop := w.start(cfg)
	<-done
	stop()
	b.StopTimer()
	if w.pending() != 0 {
		b.Fatal("entries are pending")
	}
}

func BenchmarkBare(b *testing.B) {
	w := newWorld(b)
	fill(w, b.N)
	ctx := context.Background()
	if err := w.client.XGroupCreateMkStream(ctx, testStream, testGroup, "0").Err(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		streams, err := w.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: testGroup, Consumer: "one", Streams: []string{testStream, ">"}, Count: 100}).Result()
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]string, len(streams[0].Messages))
		for i, m := range streams[0].Messages {
			ids[i] = m.ID
		}
		if err := w.client.XAck(ctx, testStream, testGroup, ids...).Err(); err != nil {
			b.Fatal(err)
		}
		n += len(ids)
	}
}

func BenchmarkDecode(b *testing.B) {
	fields := make([]string, 0, 24)
	ev := (&world{}).event(7)
	for _, v := range xadd(testStream, &ev)[3:] {
		switch v := v.(type) {
		case string:
			fields = append(fields, v)
		case *string:
			fields = append(fields, *v)
		case []byte:
			fields = append(fields, string(v))
		}
	}
	raw := pack(fields...)
	b.ReportAllocs()
	for b.Loop() {
		if e := newEntry("1-1", raw); e.bury != nil {
			b.Fatal(e.bury)
		}
	}
}

func fill(w *world, n int) {
	for n > 0 {
		part := min(n, 1000)
		w.add(part)
		n -= part
	}
}
