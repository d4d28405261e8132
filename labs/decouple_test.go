package main

import "testing"

func TestDecouple(t *testing.T) {
	c := runLab(t, "decouple")
	c.wantSome(t, "direct, consumer down", "failed")
	c.wantSum(t, "direct, consumer down", orders, "failed", "done")
	c.want(t, "queue, consumer down", "failed", 0)
	c.want(t, "queue, consumer down", "done", orders)
	c.wantSome(t, "queue, broker down", "failed")
	for _, drained := range []string{"burst, drained by 1", "burst, drained by 2", "burst, drained by 4"} {
		c.want(t, drained, "done", burst)
	}
}
