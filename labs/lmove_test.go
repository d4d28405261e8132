package main

import "testing"

func TestLMove(t *testing.T) {
	c := runLab(t, "lmove")
	for _, how := range []string{"kill -9", "timeout too short"} {
		c.want(t, how, "done", jobs)
		c.want(t, how, "lost", 0)
	}
	c.want(t, "kill -9", "workers killed", 20)
	c.wantSome(t, "timeout too short", "done more than once")
}
