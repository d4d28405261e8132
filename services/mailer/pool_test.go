package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestSendKeepsItsConnection(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	s := testSender(t, stub.server())
	for range 5 {
		if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := stub.connections(); n != 1 {
		t.Errorf("%d connections for five mails, want 1", n)
	}
	got := stub.received()
	if len(got) != 5 || got[0].from != "<orders@shop.test> BODY=8BITMIME" || got[0].to != "<ada@example.test>" {
		t.Errorf("received %d mails, the first from %q to %q", len(got), got[0].from, got[0].to)
	}
}

// A refusal leaves the connection usable, and costs nobody else's mail.
func TestRefusalKeepsTheConnection(t *testing.T) {
	t.Parallel()
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, line string) string {
			if verb == "RCPT" && strings.Contains(line, "nobody") {
				return "550 5.1.1 no such user"
			}
			return ""
		}
	})
	s := testSender(t, stub.server())
	if err := s.Send(t.Context(), testMessage(t, "nobody@example.test")); verdictOf(err) != "permanent" {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
		t.Fatal(err)
	}
	if n, _ := stub.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// What a kept connection can do to us: none of it loses, doubles or counts a mail.
func TestKeptConnectionGoesStale(t *testing.T) {
	t.Parallel()
	onSecond := func(verb, reply string) func(stubConn, string, string) string {
		return func(c stubConn, v, _ string) string {
			if c.conn == 1 && c.mail == 2 && v == verb {
				return reply
			}
			return ""
		}
	}
	for name, on := range map[string]func(stubConn, string, string) string{
		"421 to MAIL":               onSecond("MAIL", "421 4.7.0 too many mails here"),
		"450 to MAIL":               onSecond("MAIL", "450 4.7.0 too many mails here"),
		"cut at MAIL":               onSecond("MAIL", cut),
		"421 to RCPT":               onSecond("RCPT", "421 4.7.0 goodbye"),
		"cut at DATA":               onSecond("DATA", cut),
		"cut after the first's 250": onSecond("EHLO", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stub := startStub(t, func(s *smtpStub) { s.on = on })
			s := testSender(t, stub.server())
			for i := range 2 {
				if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
					t.Fatal(err)
				}
				if i == 0 && strings.HasPrefix(name, "cut after") {
					poll(t, "an idle connection", func() bool { return stub.closeIdle() == 1 })
				}
			}
			if got := stub.received(); len(got) != 2 {
				t.Errorf("%d mails, want 2", len(got))
			}
			if n, _ := stub.connections(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

// One mail, a goodbye while idle, then eleven more with three at most on each connection.
func TestIdleCloseAndMessageLimit(t *testing.T) {
	t.Parallel()
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(c stubConn, verb, _ string) string {
			if c.mail > 3 && verb == "MAIL" {
				return "421 4.7.0 three is enough"
			}
			return ""
		}
	})
	s := testSender(t, stub.server())
	send := func() {
		if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
			t.Fatal(err)
		}
	}
	send()
	poll(t, "an idle connection", func() bool { return stub.closeIdle() == 1 })
	for range 11 {
		send()
	}
	if got := stub.received(); len(got) != 12 {
		t.Errorf("%d mails, want 12", len(got))
	}
}

// A kept connection that is stale is replaced once; a server that turns every mail away is away.
func TestStaleIsTriedAgainOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	mails := 0
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(_ stubConn, verb, _ string) string {
			mu.Lock()
			defer mu.Unlock()
			if verb != "MAIL" {
				return ""
			}
			if mails++; mails > 1 {
				return "421 4.3.2 shutting down"
			}
			return ""
		}
	})
	s := testSender(t, stub.server())
	if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); verdictOf(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
	if n, _ := stub.connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A kept connection that breaks after the final dot is no stale one: trying again would be a second mail.
func TestUnknownIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	stub := startStub(t, func(s *smtpStub) {
		s.on = func(c stubConn, verb, _ string) string {
			if c.mail == 2 && verb == "." {
				return cut
			}
			return ""
		}
	})
	s := testSender(t, stub.server())
	if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), testMessage(t, "ada@example.test")); verdictOf(err) != "unknown" {
		t.Errorf("got %v", err)
	}
	if got := stub.received(); len(got) != 2 {
		t.Errorf("%d mails, want 2", len(got))
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	stub := startStub(t, nil)
	s := testSender(t, stub.server())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				if err := s.Send(t.Context(), testMessage(t, fmt.Sprintf("c%d-%d@example.test", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	to := make(map[string]int)
	for _, m := range stub.received() {
		to[m.to]++
	}
	if len(to) != 100 {
		t.Errorf("%d recipients, want 100", len(to))
	}
	if accepted, open := stub.connections(); accepted > 4 || open > 4 {
		t.Errorf("%d connections, %d at once, want 4 at most", accepted, open)
	}
	s.Close()
	poll(t, "the connections to be closed", func() bool {
		stub.mu.Lock()
		defer stub.mu.Unlock()
		return len(stub.conns) == 0
	})
}
