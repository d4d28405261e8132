package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

const eventID = "0198a7c2-0000-7000-8000-00000000000e"

// worker is a mailer's handler with a Redis and a mail server of its own.
type worker struct {
	*handler
	server *localserver.Redis
	client *redis.Client
}

func startWorker(t *testing.T, stub *smtpStub) worker {
	t.Helper()
	server := servertest.Redis(t)
	opts := server.Options()
	opts.ContextTimeoutEnabled, opts.MaxRetries = true, -1
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	w := worker{server: server, client: client}
	w.handler = w.another(t, stub)
	return w
}

// another returns the handler of a second process on the same Redis.
func (w worker) another(t *testing.T, stub *smtpStub) *handler {
	return &handler{
		markers: newMarkers(w.client, redisstream.Config{Stream: "orders", Group: "mailer", HandlerTimeout: 30 * time.Second}, 9*24*time.Hour),
		sender:  testSender(t, stub.server()),
		from:    mailbox{local: "orders", domain: "shop.test"},
	}
}

func (w worker) marker(t *testing.T) string {
	t.Helper()
	v, err := w.client.Get(t.Context(), markerKey(eventID)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return v
}

func (w worker) setMarker(t *testing.T, v string) {
	t.Helper()
	if err := w.client.Set(t.Context(), markerKey(eventID), v, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
}

func delivery(t *testing.T, entryID string) *broker.Delivery {
	t.Helper()
	data, err := testOrder("ada@example.test").Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &broker.Delivery{Event: broker.Event{ID: eventID, Type: event.TypeOrderPlaced, Data: data}, EntryID: entryID, Attempt: 1, Delivery: 1}
}

func TestMailOnce(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	w := startWorker(t, stub)
	for i, entry := range []string{"1-0", "1-0", "2-0"} {
		d := delivery(t, entry)
		if err := w.handle(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if d.IsDuplicate() != (i > 0) {
			t.Errorf("delivery %d: duplicate is %t", i, d.IsDuplicate())
		}
	}
	if n := len(stub.received()); n != 1 {
		t.Errorf("%d mails, want 1", n)
	}
	ttl := w.client.TTL(t.Context(), markerKey(eventID)).Val()
	if got := w.marker(t); got != "sent" || ttl < 8*24*time.Hour || ttl > 9*24*time.Hour {
		t.Errorf("marker is %q for %s", got, ttl)
	}
}

func TestFoundMarker(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	w := startWorker(t, stub)

	w.setMarker(t, "sending 2-0") // another entry of the same event
	err := w.handle(t.Context(), delivery(t, "1-0"))
	if wait, ok := broker.DeferredFor(err); !ok || wait > 10*time.Second {
		t.Errorf("another entry's marker: %v", err)
	}
	if n := len(stub.received()); n != 0 || w.marker(t) != "sending 2-0" {
		t.Errorf("%d mails, marker %q", n, w.marker(t))
	}

	w.setMarker(t, "gibberish")
	if err := w.handle(t.Context(), delivery(t, "1-0")); verdictOf(err) != "retry" {
		t.Errorf("an unknown marker: %v", err)
	}

	w.setMarker(t, "sending 1-0") // this entry's own: its worker died
	if err := w.handle(t.Context(), delivery(t, "1-0")); err != nil {
		t.Errorf("its own marker: %v", err)
	}
	if n := len(stub.received()); n != 1 || w.marker(t) != "sent" {
		t.Errorf("%d mails, marker %q", n, w.marker(t))
	}
}

// While one worker sends, the marker says so and outlives the handler; another entry of the same event waits.
func TestMarkerWhileSending(t *testing.T) {
	t.Parallel()
	reached, goOn := make(chan struct{}), make(chan struct{})
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			if verb == "." {
				close(reached)
				<-goOn
			}
			return ""
		}
	})
	w := startWorker(t, stub)
	done := make(chan error, 1)
	d := delivery(t, "1-0")
	go func() { done <- w.handle(t.Context(), d) }()
	<-reached
	if got := w.marker(t); got != "sending 1-0" {
		t.Errorf("marker %q", got)
	}
	if ttl := w.client.PTTL(t.Context(), markerKey(eventID)).Val(); ttl <= 30*time.Second {
		t.Errorf("the marker ends in %s", ttl)
	}
	if _, ok := broker.DeferredFor(w.another(t, stub).handle(t.Context(), delivery(t, "2-0"))); !ok {
		t.Error("the second entry was not put off")
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(stub.received()); n != 1 || w.marker(t) != "sent" {
		t.Errorf("%d mails, marker %q", n, w.marker(t))
	}
}

func TestRefusalReleasesTheMarker(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		"550 5.1.1 no such user": "permanent", "451 4.3.0 later": "retry", "421 4.3.2 closing": "unavailable", cut: "unavailable",
	} {
		stub := startStub(t, func(s *smtpStub) {
			s.on = func(_ stubConn, verb, _ string) string {
				if verb == "RCPT" {
					return reply
				}
				return ""
			}
		})
		w := startWorker(t, stub)
		err := w.handle(t.Context(), delivery(t, "1-0"))
		if got := verdictOf(err); got != want || strings.Contains(err.Error(), "ada") {
			t.Errorf("%s: %v is %s, want %s", reply, err, got, want)
		}
		if got := w.marker(t); got != "" {
			t.Errorf("%s: marker %q", reply, got)
		}
	}
}

// Somebody else's marker is left alone.
func TestReleaseComparesFirst(t *testing.T) {
	t.Parallel()
	w := startWorker(t, startStub(t, nil))
	for _, v := range []string{"sending 2-0", "sent"} {
		w.setMarker(t, v)
		w.markers.Release(t.Context(), delivery(t, "1-0"))
		if got := w.marker(t); got != v {
			t.Errorf("marker %q, want %q", got, v)
		}
	}
}

// The server stores the mail and is cut off before it can say so, twice: three copies, one Message-ID, and the marker keeps
// others away meanwhile.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	var cuts atomic.Int32
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			if verb == "." && cuts.Add(1) <= 2 {
				return cut
			}
			return ""
		}
	})
	w := startWorker(t, stub)
	for range 2 {
		if err := w.handle(t.Context(), delivery(t, "1-0")); verdictOf(err) != "unknown" {
			t.Errorf("got %v", err)
		}
		if got := w.marker(t); got != "sending 1-0" {
			t.Errorf("marker %q", got)
		}
		if _, ok := broker.DeferredFor(w.handle(t.Context(), delivery(t, "2-0"))); !ok {
			t.Error("another entry was not put off")
		}
	}
	if err := w.handle(t.Context(), delivery(t, "1-0")); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]int)
	for _, m := range stub.received() {
		header, _ := parts(t, m.content)
		ids[header.Get("Message-Id")]++
	}
	if len(ids) != 1 || ids["<"+eventID+"@shop.test>"] != 3 {
		t.Errorf("Message-IDs %v", ids)
	}
}

// A handler that is cancelled may have lost its entry; the marker then is the next owner's, under the same name.
func TestCancelLeavesTheMarker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			if verb == "RCPT" {
				cancel()
				return hang
			}
			return ""
		}
	})
	w := startWorker(t, stub)
	if err := w.handle(ctx, delivery(t, "1-0")); err == nil {
		t.Fatal("no error")
	}
	if got := w.marker(t); got != "sending 1-0" {
		t.Errorf("marker %q", got)
	}
}

// Redis goes away while a mail is on its way: this process does not send it again, and the marker follows.
func TestRedisAwayAfterSend(t *testing.T) {
	t.Parallel()
	var w worker
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			if verb == "." {
				if err := w.client.Do(context.Background(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
					t.Error(err)
				}
			}
			return ""
		}
	})
	w = startWorker(t, stub)
	for range 3 {
		if err := w.handle(t.Context(), delivery(t, "1-0")); verdictOf(err) != "unavailable" {
			t.Fatalf("got %v", err)
		}
	}
	if err := w.client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	d := delivery(t, "1-0")
	if err := w.handle(t.Context(), d); err != nil || !d.IsDuplicate() {
		t.Errorf("%v, duplicate %t", err, d.IsDuplicate())
	}
	if n := len(stub.received()); n != 1 || w.marker(t) != "sent" {
		t.Errorf("%d mails, marker %q", n, w.marker(t))
	}
	if len(w.markers.unmarked) != 0 {
		t.Error("the event is still remembered")
	}
}

func TestRedisMoods(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	w := startWorker(t, stub)
	do := func(args ...any) {
		t.Helper()
		if err := w.client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	away := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.handle(ctx, delivery(t, "1-0")); verdictOf(err) != "unavailable" {
			t.Errorf("%s: %v", what, err)
		}
	}
	do("CONFIG", "SET", "maxmemory", "1")
	away("OOM")
	do("CONFIG", "SET", "maxmemory", "0")
	do("CONFIG", "SET", "min-replicas-to-write", "1")
	away("NOREPLICAS")
	do("CONFIG", "SET", "min-replicas-to-write", "0")
	do("REPLICAOF", "127.0.0.1", "1")
	away("READONLY")
	do("REPLICAOF", "NO", "ONE")
	do("RPUSH", markerKey(eventID), "x")
	if err := w.handle(t.Context(), delivery(t, "1-0")); verdictOf(err) != "retry" {
		t.Errorf("WRONGTYPE: %v", err)
	}
	if err := w.server.Pause(); err != nil {
		t.Fatal(err)
	}
	away("frozen")
	if err := w.server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	away("killed")
	if n := len(stub.received()); n != 0 {
		t.Errorf("%d mails were sent without a marker", n)
	}
}

func TestBadEvents(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	w := startWorker(t, stub)
	d := delivery(t, "1-0")
	d.Data = []byte(`{"id":"x"}`)
	if err := w.handle(t.Context(), d); verdictOf(err) != "permanent" {
		t.Errorf("got %v", err)
	}
	for _, email := range []string{"", "a@b.test\r\nBcc: c@d.test", "a@b.test, c@d.test"} {
		o := testOrder(email)
		d := delivery(t, "1-0")
		d.Data, _ = o.Encode()
		err := w.handle(t.Context(), d)
		if verdictOf(err) != "permanent" || strings.Contains(err.Error(), "b.test") {
			t.Errorf("%q: %v", email, err)
		}
	}
	if w.marker(t) != "" || len(stub.received()) != 0 {
		t.Error("a bad event left something behind")
	}
}
