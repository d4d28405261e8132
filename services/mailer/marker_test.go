package main

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// The server has taken the mail, and then the handler is cancelled: the marker says so all the same, or another process would send it again.
func TestFinishAfterCancel(t *testing.T) {
	t.Parallel()
	w := startWorker(t, startStub(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.handler.markers.Finish(ctx, delivery(t, "1-0")); err != nil {
		t.Error(err)
	}
	if got := w.marker(t); got != sent {
		t.Errorf("marker %q, want %q", got, sent)
	}
}

// TestRedriveOfAMailInDoubt: the worker died while sending, time and again, until its entry went to the dead letters. The redrive, which is
// another entry, need not wait until the marker ends; but while that entry is pending its worker may be sending.
func TestRedriveOfAMailInDoubt(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	w := startWorker(t, stub)
	ctx := t.Context()
	w.client.XGroupCreateMkStream(ctx, "orders", "mailer", "0")
	old := w.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"id", eventID}}).Val()
	w.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "mailer", Consumer: "dead", Streams: []string{"orders", ">"}})
	w.setMarker(t, sending(old))

	d := delivery(t, "9-0")
	d.OnlyGroup = "mailer"
	if _, deferred := broker.DeferredFor(w.handle(ctx, d)); !deferred || w.marker(t) != sending(old) {
		t.Errorf("deferred: %t, marker %q; want it to wait for the entry that is pending", deferred, w.marker(t))
	}
	w.client.XAck(ctx, "orders", "mailer", old)
	if _, deferred := broker.DeferredFor(w.handle(ctx, delivery(t, "8-0"))); !deferred {
		t.Error("an entry that is no redrive took the marker")
	}
	if err := w.handle(ctx, d); err != nil || w.marker(t) != sent {
		t.Errorf("%v, marker %q; want the redrive to be sent", err, w.marker(t))
	}
	if n := len(stub.received()); n != 1 {
		t.Errorf("%d mails, want 1", n)
	}
}
