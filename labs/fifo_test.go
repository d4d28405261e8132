package main

import "testing"

func TestFIFO(t *testing.T) {
	c := runLab(t, "fifo")
	c.want(t, "1", "finished", jobs)
	c.want(t, "1", "pairs in the wrong order", 0)
	c.want(t, "4", "finished", jobs)
	c.wantSome(t, "4", "pairs in the wrong order")
}
