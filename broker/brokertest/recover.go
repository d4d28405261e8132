package brokertest

import (
	"context"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// makeGroup makes the group by letting a consumer come and go.
func makeGroup(t *testing.T, b Broker, group string) {
	stop := b.Consume(t, Consumer{Group: group, Name: "first", Handle: func(context.Context, *broker.Delivery) error { return nil }})
	Eventually(t, "the group is there", func() bool { return b.Waiting(t, group) == 0 })
	stop()
}

func takenOver(t *testing.T, b Broker) {
	makeGroup(t, b, "a")
	ids := publish(t, b, 40)
	if n := b.Strand(t, "a", 25); n != 25 {
		t.Fatalf("stranded %d entries, want 25", n)
	}
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "two", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	l.once(t, ids)
	for i, id := range ids {
		want := 1
		if i < 25 {
			want = 2
		}
		if runs := l.of(id); len(runs) != 1 || runs[0].Delivery != want || runs[0].Attempt != 1 {
			t.Errorf("event %s: %+v, want delivery %d, attempt 1", id, runs, want)
		}
	}
}

// ownFirst: what a consumer had when it was lost comes before anything new, when it is back under its name.
func ownFirst(t *testing.T, b Broker) {
	makeGroup(t, b, "a")
	publish(t, b, 10)
	if n := b.Strand(t, "a", 5); n != 5 {
		t.Fatalf("stranded %d entries, want 5", n)
	}
	var l log
	began := time.Now()
	b.Consume(t, Consumer{Group: "a", Name: StrandName, Concurrency: 1, Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, d := range l.runs {
		if own := d.Delivery == 2; own != (i < 5) {
			t.Errorf("run %d was event %s with delivery %d; want the five own ones first (all took %s)", i, d.ID, d.Delivery, time.Since(began))
		}
	}
}

// StrandName is the name under which Strand takes entries.
const StrandName = "ghost"

func crashLoop(t *testing.T, b Broker) {
	makeGroup(t, b, "a")
	ids := publish(t, b, 10)
	if n := b.Strand(t, "a", 4); n != 4 {
		t.Fatalf("stranded %d entries, want 4", n)
	}
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "two", MaxDeliveries: 1, HandleBatch: func(_ context.Context, ds []*broker.Delivery) error {
		for _, d := range ds {
			l.add(d)
		}
		return nil
	}})
	settled(t, b, "a")
	l.once(t, ids[4:])
	dead := b.Dead(t, "a")
	if len(dead) != 4 {
		t.Fatalf("dead letters %+v, want the four that were stranded", dead)
	}
	for _, d := range dead {
		if d.Reason != "max_deliveries" || d.Attempts != 0 {
			t.Errorf("dead letter %+v, want max_deliveries without a failure", d)
		}
	}
}

func drain(t *testing.T, b Broker) {
	publish(t, b, 1)
	started, finish := make(chan struct{}), make(chan struct{})
	var l log
	stop := b.Consume(t, Consumer{Group: "a", Name: "one", Handle: func(ctx context.Context, d *broker.Delivery) error {
		close(started)
		<-finish
		if ctx.Err() != nil {
			t.Error("the drain cancelled a handler that had time left")
		}
		l.add(d)
		return nil
	}})
	<-started
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Fatal("the drain did not wait for the handler")
	case <-time.After(100 * time.Millisecond): // it would have ended by now
	}
	close(finish)
	<-stopped
	if n := b.Pending(t, "a"); n != 0 {
		t.Errorf("%d pending after the drain, want 0: the finished work is acknowledged", n)
	}
	l.once(t, []string{"event-0"})
}

// release: entries that a draining consumer had not begun go to another at once and count no delivery, while its last handler still runs.
func release(t *testing.T, b Broker) {
	ids := publish(t, b, 30)
	began, finish := make(chan struct{}, 30), make(chan struct{})
	var l log
	stop := b.Consume(t, Consumer{Group: "a", Name: "one", Concurrency: 1, MaxAttempts: 100, Handle: func(_ context.Context, d *broker.Delivery) error {
		began <- struct{}{}
		<-finish
		l.add(d)
		return nil
	}})
	<-began
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	var two log
	b.Consume(t, Consumer{Group: "a", Name: "two", Handle: func(_ context.Context, d *broker.Delivery) error { two.add(d); return nil }})
	Eventually(t, "the others are done while the first still runs", func() bool { return len(two.ids()) == len(ids)-1 })
	close(finish)
	<-stopped
	settled(t, b, "a")
	if n := len(l.ids()) + len(two.ids()); n != len(ids) {
		t.Errorf("%d runs of %d events, want each once", n, len(ids))
	}
	for _, d := range two.runs {
		if d.Delivery != 1 {
			t.Errorf("event %s: delivery %d, want 1: nobody had begun it", d.ID, d.Delivery)
		}
	}
}
