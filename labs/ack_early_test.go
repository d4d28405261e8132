package main

import "testing"

func TestAckEarly(t *testing.T) {
	c := runLab(t, "ack-early")
	for _, how := range []string{"XACK before the work", "XACK after the work"} {
		c.want(t, how, "workers killed", 20)
		c.wantSum(t, how, jobs, "done", "lost")
	}
	c.wantSome(t, "XACK before the work", "lost")
	c.want(t, "XACK after the work", "lost", 0)
}
