package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestF48Repeats: finished events come again under new ids: alone, mixed with new ones in one batch, and two at once to two
// workers. Repeats are acknowledged quietly, and what is new is done.
func TestF48Repeats(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	s.postMany(f.orders, 10)
	s.balanced(f.analytics, 0)
	old := s.entries()
	s.again(old...)
	s.balanced(f.analytics, 0)

	for _, in := range f.consumers() {
		s.term(in, 10*time.Second)
	}
	for i := range old {
		s.mustPost(f.orders, "c-1", 1)
		s.eventually("it is published", func() bool { return s.count("select count(*) from outbox where published_at is null") == 0 })
		s.again(old[i])
	}
	fresh := s.entries()[20:]
	s.again(fresh...) // each new one twice, in one batch or at two workers
	s.again(old...)
	for _, in := range f.consumers() {
		s.launch(in.service, in.name+"1")
	}
	f.mailer, f.bonus, f.analytics = s.run("mailer", "m2"), s.run("bonus", "b2", "BATCH_SIZE=1"), s.run("analytics", "a2", "BATCH_SIZE=1")
	s.balanced(f.analytics, 0)
	s.blameless()
	if n := s.count("select count(*) from orders"); n != 20 {
		t.Errorf("%d orders, want 20", n)
	}
}

// TestF48KillLoop: workers and API are killed at random under load. Whatever was accepted is done once; a mail may come again
// for each mailer killed between the server's yes and its note.
func TestF48KillLoop(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	env := []string{"CONCURRENCY=1", "BATCH_SIZE=5", "HANDLER_DELAY=2ms", "ACK_DELAY=2ms"}
	f := s.runAll(env...)
	var orders atomic.Pointer[instance]
	orders.Store(f.orders)
	done := make(chan bool)
	var placed atomic.Int64
	var wg sync.WaitGroup
	for c := range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if _, _, err := s.post(orders.Load(), fmt.Sprint("c-", c), 1); err == nil {
					placed.Add(1)
				}
			}
		})
	}
	mailers := 0
	began := time.Now()
	for time.Since(began) < 8*time.Second || placed.Load() < 50 && time.Since(began) < time.Minute { // a busy machine places few
		time.Sleep(rand.N(200 * time.Millisecond))
		in := []**instance{&f.orders, &f.bonus, &f.analytics, &f.mailer}[rand.N(4)]
		s.kill(*in)
		if *in == f.mailer {
			mailers++
		}
		*in = s.launch((*in).service, (*in).name, env...)
		orders.Store(f.orders)
	}
	close(done)
	wg.Wait()
	for _, in := range f.all() {
		s.eventually(in.service+" is ready", in.ready)
	}
	s.balanced(f.analytics, mailers)
	s.blameless()
	if n := s.count("select count(*) from orders"); n < placed.Load() || placed.Load() < 50 {
		t.Errorf("%d orders, %d were answered with 201", n, placed.Load())
	}
}

// TestF13Unreadable: entries that nobody can read come by the way of a dead worker, with good ones between. Each is a dead
// letter of each group, with its reason and all its fields, and the good ones are done.
func TestF13Unreadable(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	ctx := context.Background()
	f := s.runAll()
	for _, in := range f.consumers() {
		s.term(in, 10*time.Second)
	}
	bad := [][]string{
		{"x", "y"},
		{"payload", "{"},
		{"id", "1", "type", "order.placed.v1", "data", "{"},
		{"id", "2", "type", "order.placed.v1", "data", `{"total":9223372036854775808}`},
		{"id", "3", "type", "order.placed.v1"},
		{"id", "4", "type", "order.placed.v1", "data", strings.Repeat("x", 1<<20)},
	}
	strange := [][]string{{"id", "5", "type", "order.cancelled.v1", "data", "{}"}, {"id", "6", "type", "order.placed.v2", "data", "{}"}}
	ids := map[string][]string{}
	for i, values := range append(bad, strange...) {
		s.mustPost(f.orders, "c-1", 1)
		s.eventually("it is in the stream", func() bool { return len(s.entries()) == 2*i+1 })
		id, err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: values}).Result()
		if err != nil {
			t.Fatal(err)
		}
		if i < len(bad) {
			ids[id] = values
		}
	}
	s.mustPost(f.orders, "c-1", 1)
	s.eventually("all are in the stream", func() bool { return len(s.entries()) == 17 })
	for _, in := range f.consumers() {
		s.ghost(in.service, 17)
	}
	f.mailer, f.bonus, f.analytics = s.run("mailer", "m"), s.run("bonus", "b"), s.run("analytics", "a")
	s.balanced(f.analytics, 0)
	for _, in := range f.consumers() {
		letters := s.client.XRange(ctx, "{orders}:dead:"+in.service, "-", "+").Val()
		if len(letters) != len(bad) {
			t.Errorf("%s: %d dead letters, want %d", in.service, len(letters), len(bad))
		}
		for _, l := range letters {
			id, _ := l.Values["dead_entry_id"].(string)
			values := ids[id]
			if values == nil || l.Values["dead_reason"] == "" || l.Values["dead_error"] == "" {
				t.Errorf("%s: dead letter of %s without its reason: %.200v", in.service, id, l.Values)
			}
			for i := 0; i < len(values); i += 2 {
				if l.Values[values[i]] != values[i+1] {
					t.Errorf("%s: dead letter of %s has lost its field %s", in.service, id, values[i])
				}
			}
		}
	}
}
