package main

import "testing"

func TestLag(t *testing.T) {
	c := runLab(t, "lag")
	for _, test := range []struct {
		state                      string
		length, read, lag, pending int
	}{
		{"nobody reads", 10, 0, 10, 0},
		{"idle", 10, 10, 0, 0},
		{"behind", 60, 20, 40, 10},
		{"dead", 60, 20, 40, 10},
		{"back", 60, 60, 0, 0},
	} {
		c.want(t, test.state, "entries in the stream", test.length)
		c.want(t, test.state, "entries-read", test.read)
		c.want(t, test.state, "lag", test.lag)
		c.want(t, test.state, "pending", test.pending)
	}
	if got := c["one deleted"]["lag"]; got != "nil" {
		t.Errorf("lag after a deletion: %s, want nil", got)
	}
}
