package link

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// echo starts a server that answers each line with name and the line.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, name, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String()
}

type client struct {
	*testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, l *Link) client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{t, c, bufio.NewReader(c)}
}

func (c client) ask(line string, within time.Duration) (string, error) {
	c.Helper()
	if _, err := fmt.Fprintln(c.Conn, line); err != nil {
		return "", err
	}
	return c.answer(within)
}

func (c client) answer(within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	s, err := c.lines.ReadString('\n')
	return strings.TrimSpace(s), err
}

func start(t *testing.T, target string) *Link {
	t.Helper()
	l, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

const (
	soon = 5 * time.Second
	blip = 100 * time.Millisecond
)

func TestCutAndTarget(t *testing.T) {
	t.Parallel()
	l := start(t, echo(t, "a"))
	c := dial(t, l)
	if s, err := c.ask("1", soon); s != "a 1" {
		t.Fatalf("%q, %v", s, err)
	}
	l.Target(echo(t, "b"))
	if s, _ := c.ask("2", soon); s != "a 2" {
		t.Errorf("an old connection went elsewhere: %q", s)
	}
	l.Cut()
	if s, err := c.ask("3", soon); err == nil {
		t.Errorf("%q through a link that is cut", s)
	}
	if s, err := dial(t, l).ask("4", soon); err == nil {
		t.Errorf("%q through a link that is cut", s)
	}
	l.Mend()
	if s, err := dial(t, l).ask("5", soon); s != "b 5" {
		t.Errorf("%q, %v after Mend", s, err)
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	for direction := range 2 {
		l := start(t, echo(t, "a"))
		c := dial(t, l)
		l.Stall(direction)
		if s, err := c.ask("1", blip); err == nil {
			t.Errorf("%q through a stalled link", s)
		}
		l.Mend()
		if s, err := c.answer(soon); s != "a 1" {
			t.Errorf("%q, %v after Mend", s, err)
		}
	}
}

func TestJudgeAndDelay(t *testing.T) {
	t.Parallel()
	l := start(t, echo(t, "a"))
	l.Judge(func(request []byte) Fate {
		switch string(request) {
		case "drop\n":
			return Fate{DropAnswer: true}
		case "late\n":
			return Fate{Late: 2 * blip}
		}
		return Fate{}
	})
	c := dial(t, l)
	if s, err := c.ask("late", blip); err == nil {
		t.Errorf("%q too early", s)
	}
	if s, err := c.answer(soon); s != "a late" {
		t.Errorf("%q, %v", s, err)
	}
	if s, err := c.ask("drop", soon); err == nil {
		t.Errorf("%q of an answer that is dropped", s)
	}
	l.Delay(2 * blip)
	c = dial(t, l)
	if s, err := c.ask("x", blip); err == nil {
		t.Errorf("%q too early", s)
	}
}
