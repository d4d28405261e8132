package main

import "testing"

func TestLag(t *testing.T) {
	c := runLab(t, "lag")
	for _, test := range []struct {
		state                      string
		length, read, lag, pending int
		connected                  string
	}{
		{"nobody reads", 10, 0, 10, 0, "no"},
		{"idle", 10, 10, 0, 0, "yes"},
		{"behind", 60, 20, 40, 10, "yes"},
		{"dead", 60, 20, 40, 10, "no"},
		{"back", 60, 60, 0, 0, "yes"},
	} {
		c.want(t, test.state, "entries in the stream", test.length)
		c.want(t, test.state, "entries-read", test.read)
		c.want(t, test.state, "lag", test.lag)
		c.want(t, test.state, "pending", test.pending)
		if got := c[test.state]["connected"]; got != test.connected {
			t.Errorf("%s: connected: %s, want %s", test.state, got, test.connected)
		}
	}
	if before, after := c.number(t, "behind", "idle, ms"), c.number(t, "dead", "idle, ms"); after <= before {
		t.Errorf("idle for %d ms when behind, and %d when dead for a while", before, after)
	}
	if got := c["one deleted"]["lag"]; got != "nil" {
		t.Errorf("lag after a deletion: %s, want nil", got)
	}
}
