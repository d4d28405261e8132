package main

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	c := runLab(t, "compare")
	left, deliveries, rescued, wrong, size, rate, lost, again := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
	c.want(t, left, "list", 0)
	c.want(t, left, "list + LMOVE", 0)
	c.want(t, left, "stream", drained)
	c.want(t, deliveries, "list", jobs)
	c.want(t, deliveries, "list + LMOVE", jobs)
	c.want(t, deliveries, "stream", 2*jobs)
	c.want(t, rescued, "list", 0)
	c.want(t, rescued, "list + LMOVE", inHand)
	c.want(t, rescued, "stream", inHand)
	for _, kind := range []string{"list", "list + LMOVE", "stream"} {
		c.want(t, wrong, kind, 0)
		c.wantSome(t, rate, kind)
		if n := c.number(t, size, kind); n < len(payload) || n > 2*len(payload) {
			t.Errorf("%s: %d bytes in memory for a message of %d", kind, n, len(payload))
		}
	}
	c.wantSome(t, lost, "list")
	if n := c.number(t, lost, "list"); n > crashes {
		t.Errorf("%d lost in %d crashes of consumers, of which each has one job at a time", n, crashes)
	}
	c.want(t, again, "list", 0)
	c.want(t, lost, "list + LMOVE", 0)
	c.want(t, lost, "stream", 0)
}

// TestBlank shows that the table to be filled in has the lines and columns of the one that is measured, and no number of it.
func TestBlank(t *testing.T) {
	t.Parallel()
	cmd, stdout, stderr := command(t, "compare", "--blank", "--redis", "redis://127.0.0.1:1")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, row := range rows {
		_, cells, ok := strings.Cut(stdout.String(), row)
		cells, _, _ = strings.Cut(cells, "\n")
		if !ok || len(strings.Fields(cells)) != 3 || strings.Trim(cells, "_ ") != "" {
			t.Errorf("%q has the cells %q, want three empty ones", row, cells)
		}
	}
	comparePage(t, []string{"compare", "--blank"}, stdout.String())
}
