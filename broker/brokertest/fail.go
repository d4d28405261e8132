package brokertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

var errTest = errors.New("it does not work")

func retried(t *testing.T, b Broker) {
	ids := publish(t, b, 1)
	var l log
	var o outcomes
	b.Consume(t, Consumer{Group: "a", Name: "one", Observe: o.observe, Handle: func(_ context.Context, d *broker.Delivery) error {
		if l.add(d); d.Attempt < 3 {
			return errTest
		}
		return nil
	}})
	settled(t, b, "a")
	var attempts []int
	for _, d := range l.of(ids[0]) {
		attempts = append(attempts, d.Attempt)
	}
	if !slices.Equal(attempts, []int{1, 2, 3}) {
		t.Errorf("attempts %v, want 1 2 3", attempts)
	}
	if got := o.of(ids[0]); !slices.Equal(got, []broker.Outcome{broker.Retried, broker.Retried, broker.Done}) {
		t.Errorf("outcomes %v, want retry, retry, done", got)
	}
}

func delaysNobody(t *testing.T, b Broker) {
	publish(t, b, 100)
	var good atomic.Int64
	release := make(chan struct{})
	b.Consume(t, Consumer{Group: "a", Name: "one", Concurrency: 1, MaxAttempts: 1000, Handle: func(_ context.Context, d *broker.Delivery) error {
		if d.ID != "event-0" {
			good.Add(1)
			return nil
		}
		select {
		case <-release:
			return nil
		default:
			return errTest
		}
	}})
	Eventually(t, "the 99 others are done while one fails", func() bool { return good.Load() == 99 })
	Eventually(t, "only the failing one is pending", func() bool { return b.Pending(t, "a") == 1 })
	close(release)
	settled(t, b, "a")
}

func lastAttempt(t *testing.T, b Broker) {
	publish(t, b, 3)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 3, Handle: func(_ context.Context, d *broker.Delivery) error {
		if l.add(d); d.ID == "event-1" {
			return errTest
		}
		return nil
	}})
	settled(t, b, "a")
	if n := len(l.of("event-1")); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
	dead := b.Dead(t, "a")
	if len(dead) != 1 {
		t.Fatalf("dead letters %+v, want one", dead)
	}
	d := dead[0]
	if d.Event.ID != "event-1" || d.Reason != "max_attempts" || d.Attempts != 3 || !strings.Contains(d.Error, errTest.Error()) || d.EntryID != l.of("event-1")[0].EntryID {
		t.Errorf("dead letter %+v: want event-1 with reason, 3 attempts, the error and the entry id", d)
	}
}

func permanent(t *testing.T, b Broker) {
	publish(t, b, 2)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error {
		if l.add(d); d.ID == "event-0" {
			return broker.Permanent(errTest)
		}
		return nil
	}})
	settled(t, b, "a")
	l.once(t, []string{"event-0", "event-1"})
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Event.ID != "event-0" || dead[0].Reason != "permanent" {
		t.Errorf("dead letters %+v, want event-0, permanent", dead)
	}
}

func panics(t *testing.T, b Broker) {
	publish(t, b, 5)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 2, Handle: func(_ context.Context, d *broker.Delivery) error {
		if l.add(d); d.ID == "event-2" {
			panic("out of cheese")
		}
		return nil
	}})
	settled(t, b, "a")
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Event.ID != "event-2" || dead[0].Attempts != 2 || !strings.Contains(dead[0].Error, "out of cheese") {
		t.Errorf("dead letters %+v, want event-2 after 2 attempts with the panic's text", dead)
	}
}

func deferred(t *testing.T, b Broker) {
	ids := publish(t, b, 1)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 2, Handle: func(_ context.Context, d *broker.Delivery) error {
		if l.add(d); len(l.of(ids[0])) <= 5 {
			return broker.Defer(10 * time.Millisecond)
		}
		return nil
	}})
	settled(t, b, "a")
	runs := l.of(ids[0])
	if len(runs) != 6 || runs[5].Attempt != 1 {
		t.Errorf("%d runs, the last with attempt %d; want 6 runs, attempt 1", len(runs), runs[len(runs)-1].Attempt)
	}
	if dead := b.Dead(t, "a"); len(dead) != 0 {
		t.Errorf("dead letters %+v, want none", dead)
	}
}

func outage(t *testing.T, b Broker) {
	ids := publish(t, b, 20)
	var down atomic.Bool
	down.Store(true)
	var tries atomic.Int64
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 2, Concurrency: 4, Handle: func(_ context.Context, d *broker.Delivery) error {
		if down.Load() {
			tries.Add(1)
			return broker.Unavailable(errTest)
		}
		l.add(d)
		return nil
	}})
	Eventually(t, "the outage was met several times", func() bool { return tries.Load() >= 8 })
	down.Store(false)
	settled(t, b, "a")
	l.once(t, ids)
	for _, d := range l.runs {
		if d.Attempt != 1 {
			t.Errorf("event %s: attempt %d after an outage, want 1", d.ID, d.Attempt)
		}
	}
	if dead := b.Dead(t, "a"); len(dead) != 0 {
		t.Errorf("dead letters %+v, want none", dead)
	}
}

// strikes: an entry that says "unavailable" whenever it is run, while all others succeed, is to blame itself.
func strikes(t *testing.T, b Broker) {
	publish(t, b, 30)
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 1, Concurrency: 1, Handle: func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "event-7" {
			return broker.Unavailable(errTest)
		}
		return nil
	}})
	// Others must go on succeeding between its runs.
	n := 30
	Eventually(t, "the entry is in the dead letters", func() bool {
		if _, err := b.Publish(context.Background(), []broker.Event{newEvent(n)}, broker.Position{}); err != nil {
			t.Fatal(err)
		}
		n++
		return len(b.Dead(t, "a")) > 0
	})
	settled(t, b, "a")
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Event.ID != "event-7" || dead[0].Reason != "max_attempts" {
		t.Errorf("dead letters %+v, want event-7", dead)
	}
}

func badInBatch(t *testing.T, b Broker) {
	ids := publish(t, b, 100)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 2, HandleBatch: func(_ context.Context, ds []*broker.Delivery) error {
		for _, d := range ds {
			if d.ID == "event-42" {
				return errTest
			}
		}
		for _, d := range ds {
			if d.Attempt != 1 {
				t.Errorf("event %s has attempt %d: blamed for its neighbour", d.ID, d.Attempt)
			}
			l.add(d)
		}
		return nil
	}})
	settled(t, b, "a")
	l.once(t, slices.DeleteFunc(ids, func(id string) bool { return id == "event-42" }))
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Event.ID != "event-42" || dead[0].Attempts != 2 {
		t.Errorf("dead letters %+v, want event-42 after 2 attempts", dead)
	}
}

func rejected(t *testing.T, b Broker) {
	ids := publish(t, b, 50)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", HandleBatch: func(_ context.Context, ds []*broker.Delivery) error {
		for _, d := range ds {
			switch {
			case d.ID == "event-3":
				d.Reject(broker.Permanent(errTest))
			case d.ID == "event-4" && d.Attempt == 1:
				d.Reject(errTest)
			default:
				l.add(d)
			}
		}
		return nil
	}})
	settled(t, b, "a")
	l.once(t, slices.DeleteFunc(ids, func(id string) bool { return id == "event-3" }))
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Event.ID != "event-3" || dead[0].Reason != "permanent" {
		t.Errorf("dead letters %+v, want event-3, permanent", dead)
	}
}

func batchOutage(t *testing.T, b Broker) {
	ids := publish(t, b, 50)
	var tries atomic.Int64
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 1, HandleBatch: func(_ context.Context, ds []*broker.Delivery) error {
		if tries.Add(1) <= 4 {
			return broker.Unavailable(errTest)
		}
		for _, d := range ds {
			l.add(d)
		}
		return nil
	}})
	settled(t, b, "a")
	l.once(t, ids)
	if dead := b.Dead(t, "a"); len(dead) != 0 {
		t.Errorf("dead letters %+v, want none", dead)
	}
}

func timeout(t *testing.T, b Broker) {
	publish(t, b, 1)
	b.Consume(t, Consumer{Group: "a", Name: "one", MaxAttempts: 2, HandlerTimeout: 50 * time.Millisecond, Handle: func(ctx context.Context, _ *broker.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	settled(t, b, "a")
	if dead := b.Dead(t, "a"); len(dead) != 1 || dead[0].Attempts != 2 || !strings.Contains(dead[0].Error, "timed out") {
		t.Errorf("dead letters %+v, want one after 2 attempts that names the time-out", dead)
	}
}
