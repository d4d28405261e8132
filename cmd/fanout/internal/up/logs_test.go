package up

import (
	"bytes"
	"testing"
)

func TestLogLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	c := newConsole(&b, false)
	orders, bonus := c.source("orders"), c.source("bonus")
	orders.Write([]byte("one\ntw"))
	bonus.Write([]byte("three\r\n"))
	orders.Write([]byte("o\nend"))
	orders.flush()
	orders.flush()
	c.hold()
	bonus.Write([]byte("held\n"))
	c.say("table")
	c.release()
	const want = "orders    | one\nbonus     | three\norders    | two\norders    | end\ntable\nbonus     | held\n"
	if b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}

func TestColour(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	newConsole(&b, true).source("bonus").Write([]byte("x\n"))
	if want := "\x1b[32mbonus     |\x1b[0m x\n"; b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}
