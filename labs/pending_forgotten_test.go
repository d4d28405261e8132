package main

import "testing"

func TestPendingForgotten(t *testing.T) {
	c := runLab(t, "pending-forgotten")
	c.wantSome(t, "reads only >", "hanging")
	c.want(t, "reads only >", "hanging after 200 more", c.number(t, "reads only >", "hanging"))
	if done, hanging := c.number(t, "reads only >", "done"), c.number(t, "reads only >", "hanging"); done+hanging < jobs+200 {
		t.Errorf("%d done and %d hanging: some of %d are neither", done, hanging, jobs+200)
	}
	c.want(t, "reads 0, then >", "done", jobs+200)
	c.want(t, "reads 0, then >", "hanging after 200 more", 0)
}
