package main

import "testing"

func TestPoison(t *testing.T) {
	c := runLab(t, "poison")
	c.wantSome(t, "1 worker", "left undone")
	for _, how := range []string{"1 worker", "4 workers that claim"} {
		c.want(t, how, "dead letters", 0)
		if n := c.number(t, how, "dead workers"); n <= 3 {
			t.Errorf("%s: %d dead workers, want more than with dead letters", how, n)
		}
	}
	for _, how := range []string{"1 worker, dead letters", "4 workers, dead letters"} {
		c.want(t, how, "good ones done", jobs-1)
		c.want(t, how, "left undone", 0)
		c.want(t, how, "dead workers", 3)
		c.want(t, how, "dead letters", 1)
	}
}
