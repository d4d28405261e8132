package main

import "testing"

func TestMaxlen(t *testing.T) {
	c := runLab(t, "maxlen")
	for _, how := range []string{"no cap", "XTRIM by groups"} {
		c.want(t, how, "gone unread", 0)
	}
	c.want(t, "no cap", "length with slow down", added)
	c.want(t, "XTRIM by groups", "length with slow down", added-readFirst)
	c.want(t, "MAXLEN = 1000", "length with slow down", longest)
	c.want(t, "MAXLEN = 1000", "gone unread", added-readFirst-longest)
	about := "MAXLEN ~ 1000"
	c.wantSome(t, about, "gone unread")
	c.wantSum(t, about, added-readFirst, "length with slow down", "gone unread")
	if n := c.number(t, about, "length with slow down"); n < longest || n > longest+200 {
		t.Errorf("%s: length %d, want at least %d and not much more", about, n, longest)
	}
	if capped, free := c.number(t, "MAXLEN = 1000", "KiB"), c.number(t, "no cap", "KiB"); capped >= free/2 {
		t.Errorf("%d KiB with the cap and %d without", capped, free)
	}
	if before, after := c.number(t, "XTRIM by groups", "KiB"), c.number(t, "XTRIM by groups", "KiB once slow is back"); after >= before/2 {
		t.Errorf("trimming by groups: %d KiB with slow down, and still %d once it is back", before, after)
	}
}
