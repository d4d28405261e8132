package brokertest

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

func everyGroup(t *testing.T, b Broker) {
	ids := publish(t, b, 50)
	logs := map[string]*log{"a": {}, "b": {}, "c": {}}
	for group, l := range logs {
		b.Consume(t, Consumer{Group: group, Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	}
	for group, l := range logs {
		settled(t, b, group)
		l.once(t, ids)
	}
}

func unchanged(t *testing.T, b Broker) {
	want := broker.Event{
		ID: "0198-ä", Source: "/orders", Type: "order.placed.v1", Time: time.Date(2026, 2, 28, 23, 59, 59, 123456789, time.UTC), Subject: "s",
		PartitionKey: "p", DataContentType: "application/json", DataSchema: "https://example.com/s", TraceParent: "00-1-2-01", Data: []byte("{\"a\":\"\\u0000\"}\r\n\x00\xff"),
	}
	if _, err := b.Publish(context.Background(), []broker.Event{want}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	runs := l.of(want.ID)
	if len(runs) != 1 || !reflect.DeepEqual(runs[0].Event, want) {
		t.Fatalf("got %+v, want %+v", runs, want)
	}
	if runs[0].Attempt != 1 || runs[0].Delivery != 1 || runs[0].EntryID == "" {
		t.Errorf("got %+v, want attempt 1, delivery 1 and an entry id", runs[0])
	}
}

func publishOrder(t *testing.T, b Broker) {
	ids := publish(t, b, 500)
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", BatchSize: 64, HandleBatch: func(_ context.Context, ds []*broker.Delivery) error {
		if len(ds) > 64 {
			t.Errorf("batch of %d, want at most 64", len(ds))
		}
		for _, d := range ds {
			l.add(d)
		}
		return nil
	}})
	settled(t, b, "a")
	var got []string
	for _, d := range l.runs {
		got = append(got, d.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("one batch worker got the events out of order")
	}
}

func publishRefuses(t *testing.T, b Broker) {
	for name, bad := range map[string]broker.Event{"ID": {Type: "t"}, "Type": {ID: "typeless"}} {
		_, err := b.Publish(context.Background(), []broker.Event{newEvent(0), bad}, broker.Position{})
		if err == nil || !strings.Contains(err.Error(), "event 2") || !strings.Contains(err.Error(), "no "+name) {
			t.Errorf("Publish = %v, want an error that says that event 2 has no %s", err, name)
		}
	}
	if _, err := b.Publish(context.Background(), []broker.Event{newEvent(1)}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	l.once(t, []string{newEvent(1).ID}) // all or none: event 0 was not appended either
}

func duplicate(t *testing.T, b Broker) {
	ids := publish(t, b, 1)
	var o outcomes
	b.Consume(t, Consumer{Group: "a", Name: "one", Observe: o.observe, Handle: func(_ context.Context, d *broker.Delivery) error {
		d.Duplicate()
		return nil
	}})
	settled(t, b, "a")
	if got := o.of(ids[0]); !slices.Equal(got, []broker.Outcome{broker.Duplicate}) {
		t.Errorf("outcomes %v, want one duplicate", got)
	}
}

func skipped(t *testing.T, b Broker) {
	other := newEvent(1)
	other.Type = "thing.undone.v1"
	if _, err := b.Publish(context.Background(), []broker.Event{newEvent(0), other, newEvent(2)}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	var l log
	var o outcomes
	b.Consume(t, Consumer{Group: "a", Name: "one", Types: []string{"thing.done.v1"}, Observe: o.observe, Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	l.once(t, []string{"event-0", "event-2"})
	if got := o.of("event-1"); !slices.Equal(got, []broker.Outcome{broker.Skipped}) {
		t.Errorf("outcomes of the other type %v, want skipped", got)
	}
	if dead := b.Dead(t, "a"); len(dead) != 0 {
		t.Errorf("dead letters %+v, want none", dead)
	}
}

func onlyGroup(t *testing.T, b Broker) {
	ev := newEvent(0)
	ev.OnlyGroup = "b"
	if _, err := b.Publish(context.Background(), []broker.Event{ev}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	logs := map[string]*log{"a": {}, "b": {}}
	for group, l := range logs {
		b.Consume(t, Consumer{Group: group, Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	}
	settled(t, b, "a")
	settled(t, b, "b")
	logs["a"].once(t, nil)
	logs["b"].once(t, []string{ev.ID})
}

func malformed(t *testing.T, b Broker) {
	publish(t, b, 1)
	b.PublishRaw(t, "x", "y")
	b.PublishRaw(t, "id", "only-an-id", "data", "{")
	if _, err := b.Publish(context.Background(), []broker.Event{newEvent(1)}, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	var l log
	b.Consume(t, Consumer{Group: "a", Name: "one", Handle: func(_ context.Context, d *broker.Delivery) error { l.add(d); return nil }})
	settled(t, b, "a")
	l.once(t, []string{"event-0", "event-1"})
	dead := b.Dead(t, "a")
	if len(dead) != 2 {
		t.Fatalf("dead letters %+v, want 2", dead)
	}
	for _, d := range dead {
		if d.Reason != "malformed" || d.EntryID == "" || d.Error == "" {
			t.Errorf("dead letter %+v: want reason malformed, its entry id and what is wrong", d)
		}
	}
	if dead[0].Fields["x"] != "y" && dead[1].Fields["x"] != "y" {
		t.Errorf("dead letters %+v, want the entry's own fields in them", dead)
	}
}

func concurrency(t *testing.T, b Broker) {
	publish(t, b, 60)
	var now, most atomic.Int64
	full := make(chan struct{})
	b.Consume(t, Consumer{Group: "a", Name: "one", Concurrency: 4, Handle: func(ctx context.Context, _ *broker.Delivery) error {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		if n == 4 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		select { // all four are in here at once before any goes on
		case <-full:
		case <-ctx.Done():
		}
		return nil
	}})
	settled(t, b, "a")
	if got := most.Load(); got != 4 {
		t.Errorf("%d handlers at once, want 4", got)
	}
}
