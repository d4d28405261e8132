package outbox_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/outbox"
)

// An event comes out of the outbox as it went in.
func TestAddKeepsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	full := broker.Event{
		ID: "0190-7", Source: "/orders", Type: "order.placed.v1", Time: time.Date(2024, 2, 29, 23, 59, 59, 123456000, time.UTC),
		Subject: "s'\"\\", PartitionKey: "c-42", DataContentType: "application/json", DataSchema: "https://example.com/schema",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", OnlyGroup: "bonus", Data: []byte("\x00{\"é\":1}\xff"),
	}
	bare := broker.Event{ID: "bare", Type: "t"}
	w.addEvents(t, full, bare)
	var got []broker.Event
	w.hook(func(_ context.Context, events []broker.Event) error { got = append(got, events...); return nil })
	w.start(t, never)
	w.wantEntries(t, []string{"0190-7", "bare"})
	if !reflect.DeepEqual(got[0], full) {
		t.Errorf("got  %+v\nwant %+v", got[0], full)
	}
	if age := time.Since(got[1].Time); age < 0 || age > time.Minute {
		t.Errorf("Time of an event without one is %s ago, want now", age)
	}
	if len(got[1].Data) != 0 || got[1].Source != "" {
		t.Errorf("bare event = %+v", got[1])
	}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, "there")
	for _, c := range []struct {
		events []broker.Event
		want   string
	}{
		{[]broker.Event{newEvent("a"), {Type: "t"}}, "event 2 of 2"},
		{[]broker.Event{{ID: "typeless"}}, "typeless"},
		{[]broker.Event{newEvent("new"), newEvent("there")}, "new"},
	} {
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, c.events...) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Add = %v, want an error that names %q", err, c.want)
		}
	}
	var n int
	if w.query(t, &n, `select count(*) from outbox`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

func TestAddGoesWithItsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Add(t.Context(), tx, newEvent("a")); err != nil {
		t.Fatal(err)
	}
	if err := outbox.Add(t.Context(), tx); err != nil {
		t.Errorf("Add of nothing = %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if w.query(t, &n, `select count(*) from outbox`); n != 0 {
		t.Errorf("%d rows after the rollback, want none", n)
	}
}
