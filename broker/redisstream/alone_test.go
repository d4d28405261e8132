package redisstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

func suspect(id string) *entry {
	e := newEntry(id, pack("id", id, "type", "t"))
	e.deliveries, e.started = 3, true
	return e
}

// TestSuspectProbesAlone: an entry on its third delivery that met an outage before probes the next one with nothing beside it.
func TestSuspectProbesAlone(t *testing.T) {
	t.Parallel()
	cfg := Config{HandlerTimeout: 5 * time.Second, Concurrency: 4, BatchSize: 1}
	cfg.Handle = func(context.Context, *broker.Delivery) error { return nil }
	tb := newTable(&cfg)
	down := errors.New("down")
	s := suspect("1-1")
	tb.add([]*entry{s})
	tb.next() // alone
	tb.unavailable([]*entry{s}, down)
	tb.ran(s.run, 1, time.Millisecond)
	tb.succeeded(0) // a probe went through: over
	tb.next()
	tb.wait(s, 0) // say, it failed; it waits
	tb.ran(s.run, 1, time.Millisecond)
	// The next outage, with two runs going on, one of which hangs.
	x, y := newEntry("2-1", pack("id", "x", "type", "t")), newEntry("2-2", pack("id", "y", "type", "t"))
	tb.add([]*entry{x, y})
	tb.next()
	tb.next()
	tb.unavailable([]*entry{y}, down)
	tb.ran(y.run, 1, time.Millisecond)
	tb.wake(time.Now().Add(time.Second)) // s is due
	tb.mu.Lock()
	tb.queue.take()
	tb.tried.take()
	tb.ready(s)
	batch := tb.pick(time.Now().Add(time.Minute))
	busy, exclusive := tb.busy, tb.exclusive
	tb.mu.Unlock()
	if len(batch) == 1 && batch[0] == s && (busy > 0 || !exclusive) {
		t.Errorf("a suspect is run beside %d others, exclusive: %t", busy, exclusive)
	}
}

// TestHopelessRunEndsNothingElse: a handler that ignored its cancel returns at last; the one that must be alone stays alone.
func TestHopelessRunEndsNothingElse(t *testing.T) {
	t.Parallel()
	cfg := Config{HandlerTimeout: 5 * time.Second, Concurrency: 4, BatchSize: 1}
	cfg.Handle = func(context.Context, *broker.Delivery) error { return nil }
	tb := newTable(&cfg)
	h, s, x := newEntry("1-1", pack("id", "h", "type", "t")), suspect("1-2"), newEntry("1-3", pack("id", "x", "type", "t"))
	tb.add([]*entry{h})
	tb.next()
	tb.mu.Lock()
	tb.giveUp(h) // its handler ignores the cancel
	tb.mu.Unlock()
	tb.add([]*entry{s, x})
	if b := tb.next(); b[0] != s {
		t.Fatal("want the suspect first")
	}
	tb.mu.Lock()
	if tb.pick(time.Now()) != nil {
		t.Fatal("the suspect is not alone from the start")
	}
	tb.mu.Unlock()
	tb.ran(h.run, 1, time.Minute) // h returns after all
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if b := tb.pick(time.Now()); b != nil {
		t.Errorf("%s is started beside the suspect, which still runs", b[0].ID)
	}
}
