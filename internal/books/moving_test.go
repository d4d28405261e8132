package books_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/books"
)

// While orders move as fast as they can, also against the flow (into the dead letters and back, and published again), the
// books are read over and over, and nothing is ever called lost or done twice. When it stops they balance.
func TestMovingEventsAreNeverWrong(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	var workers sync.WaitGroup
	var accepted atomic.Int64
	for range 2 { // orders and relays
		workers.Go(func() {
			for ctx.Err() == nil {
				p := w.accept(rand.Int64N(1_000_000))
				accepted.Add(1)
				w.publish(&p)
				if rand.IntN(20) == 0 {
					w.xadd(p) // the relay died before it marked the row
				}
			}
		})
	}
	for _, group := range books.Groups {
		workers.Go(func() {
			letters := redisstream.NewDeadLetters(w.redis, "orders", group)
			for ctx.Err() == nil {
				w.work(group, letters)
			}
		})
	}
	reads := 0
	for ctx.Err() == nil {
		if r := w.read(); r.Verdict() == books.Wrong {
			t.Errorf("read %d: %s", reads, show(r))
			stop()
		}
		reads++
	}
	workers.Wait()
	for rest := 1; rest > 0; {
		rest = 0
		for _, group := range books.Groups {
			rest += w.work(group, redisstream.NewDeadLetters(w.redis, "orders", group))
		}
	}
	r := w.read()
	if r.Verdict() != books.Balanced || r.Accepted != accepted.Load() {
		t.Errorf("in the end: %d of %d accepted, %s", r.Accepted, accepted.Load(), show(r))
	}
	t.Logf("%d orders, %d reads", accepted.Load(), reads)
}

// work does what there is for a group, at most some entries at a time. Now and then one dies and is redriven.
func (w *world) work(group string, letters *redisstream.DeadLetters) int {
	ctx := context.Background()
	args := &redis.XReadGroupArgs{Group: group, Consumer: "one", Streams: []string{"orders", ">"}, Count: 10, Block: -1}
	streams, err := w.redis.XReadGroup(ctx, args).Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	if err != nil {
		w.Error(err)
		return 0
	}
	entries := streams[0].Messages
	for _, e := range entries {
		id, fields := e.ID, map[string]string{}
		for name, value := range e.Values {
			fields[name], _ = value.(string)
		}
		if only := fields["onlygroup"]; only != "" && only != group {
			w.ack(group, id)
			continue
		}
		if fields["onlygroup"] == "" && rand.IntN(5) == 0 {
			pipe := w.redis.TxPipeline()
			dead := pipe.Do(ctx, "XADD", redisstream.DeadKey("orders", group), "*", "id", fields["id"], "type", "order.placed.v1", "dead_reason", "permanent")
			pipe.XAck(ctx, "orders", group, id)
			if _, err := pipe.Exec(ctx); err != nil {
				w.Error(err)
			}
			if _, err := letters.Redrive(ctx, dead.Val().(string)); err != nil {
				w.Error(err)
			}
			continue
		}
		w.handle(group, fields["id"])
		w.ack(group, id)
	}
	return len(entries)
}

// handle does a group's work once for an event.
func (w *world) handle(group, event string) {
	ctx := context.Background()
	p := placed{event: event}
	err := w.db.QueryRow(ctx, `select id::text, total, created_at from orders where event_id = $1`, event).Scan(&p.id, &p.total, &p.at)
	if err != nil {
		w.Error(err)
		return
	}
	p.at = p.at.UTC()
	done := w.redis.SIsMember(ctx, "analytics:{stats}:counted:"+p.at.Format(time.DateOnly), event).Val()
	if group == "bonus" {
		err = w.db.QueryRow(ctx, `select exists (select from processed where event_id = $1)`, event).Scan(&done)
	}
	if err != nil {
		w.Error(err)
	} else if group == "mailer" || !done {
		w.effect(group, p)
	}
}
