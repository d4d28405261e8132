package main

import "testing"

func TestTwice(t *testing.T) {
	c := runLab(t, "twice")
	for _, test := range []struct {
		handler        string
		skipped, again bool
	}{
		{"no marker", false, true},
		{"no marker, data put right", false, true},
		{"marker before the work", true, false},
		{"one transaction", false, false},
		{"one script", false, false},
		{"mail, marker after it", false, true},
	} {
		c.want(t, test.handler, "workers killed", 20)
		c.wantSome(t, test.handler, "came again")
		for column, some := range map[string]bool{"skipped for good": test.skipped, "done again": test.again} {
			if some {
				c.wantSome(t, test.handler, column)
			} else {
				c.want(t, test.handler, column, 0)
			}
		}
	}
}
