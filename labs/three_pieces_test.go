package main

import "testing"

func TestThreePieces(t *testing.T) {
	c := runLab(t, "three-pieces")
	c.want(t, "all three", "done", pieces)
	c.want(t, "all three", "lost", 0)
	for _, missing := range []string{"producer does not wait", "broker does not persist", "XACK before the work"} {
		c.wantSome(t, missing, "lost")
		c.wantSum(t, missing, pieces, "done", "lost")
	}
}
