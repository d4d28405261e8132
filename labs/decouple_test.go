package main

import "testing"

func TestDecouple(t *testing.T) {
	c := runLab(t, "decouple")
	direct, queue, noBroker := "direct, consumer down", "queue, consumer down", "queue, broker down"
	away := upAt - downAt // so many orders come while it is
	if n := c.number(t, direct, "failed"); n < away {
		t.Errorf("%s: %d failed, want at least the %d of that time", direct, n, away)
	}
	c.want(t, direct, "waited", 0)
	c.wantSum(t, direct, orders, "failed", "done")
	c.want(t, queue, "failed", 0)
	if n := c.number(t, queue, "waited"); n < away {
		t.Errorf("%s: %d waited, want at least the %d of that time", queue, n, away)
	}
	c.want(t, queue, "done", orders)
	if n := c.number(t, noBroker, "failed"); n < away {
		t.Errorf("%s: %d failed, want at least the %d of that time", noBroker, n, away)
	}
	c.wantSum(t, noBroker, orders, "failed", "waited")
	if n := c.number(t, queue, "latest mail, ms"); n < away { // the first of that time waits through all of it, an order a millisecond
		t.Errorf("%s: the latest mail came after %d ms, want at least %d", queue, n, away)
	}
	// Each mail takes its time, on any machine: so one consumer needs at least the sum.
	if n := c.number(t, "burst, drained by 1", "latest mail, ms"); n < burst/2 {
		t.Errorf("burst, drained by 1: the latest mail came after %d ms, want at least %d", n, burst/2)
	}
	for _, drained := range []string{"burst, drained by 1", "burst, drained by 2", "burst, drained by 4"} {
		c.wantSome(t, drained, "waited")
		c.want(t, drained, "done", burst)
	}
}
