package main

import "testing"

func TestDualWrite(t *testing.T) {
	c := runLab(t, "dual-write")
	noEvent, noOrder := "orders without an event", "events without an order"
	c.wantSome(t, "commit, then XADD", noEvent)
	c.want(t, "commit, then XADD", noOrder, 0)
	c.wantSome(t, "XADD, then commit", noOrder)
	c.want(t, "XADD, then commit", noEvent, 0)
	c.want(t, "outbox and relay", noEvent, 0)
	c.want(t, "outbox and relay", noOrder, 0)
	for how := range c {
		// A killed request may have left nothing at all: nobody was told that it was accepted.
		if n := c.number(t, how, "orders"); n > orders || n < orders-20 {
			t.Errorf("%s: %d orders, want at most %d and at least %d", how, n, orders, orders-20)
		}
	}
}
