package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
)

func testOrder(email string) event.OrderPlaced {
	return event.OrderPlaced{
		ID: "0198a7c2-0000-7000-8000-000000000001", CustomerID: "c-42", Email: email, Currency: "EUR", Status: "placed",
		Items: []event.Item{{SKU: "tea-100", Quantity: 2, UnitPrice: 1250}}, Total: 2500,
		CreatedAt: time.Date(2026, 11, 29, 17, 35, 0, 0, time.UTC),
	}
}

func testMessage(t *testing.T, email string) *message {
	t.Helper()
	from, err := parseMailbox("Tee & Mehr <orders@shop.test>")
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMessage(from, "0198a7c2-0000-7000-8000-00000000000e", testOrder(email), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testSender(t *testing.T, s server) *sender {
	t.Helper()
	out := newSender(s, 4)
	t.Cleanup(out.Close)
	return out
}

// verdictOf names the verdict that an error carries.
func verdictOf(err error) string {
	switch {
	case err == nil:
		return "sent"
	case broker.IsPermanent(err):
		return "permanent"
	case broker.IsUnavailable(err):
		return "unavailable"
	case errors.Is(err, errUnknown):
		return "unknown"
	default:
		return "retry"
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ verb, reply, want string }{
		{"GREETING", "421 4.3.2 too many connections", "unavailable"},
		{"GREETING", "554 5.7.1 no service for you", "unavailable"},
		{"GREETING", cut, "unavailable"},
		{"EHLO", "421 4.3.2 closing", "unavailable"},
		{"EHLO", cut, "unavailable"},
		{"MAIL", "421 4.3.2 closing", "unavailable"},
		{"MAIL", "452 4.3.1 disk full", "unavailable"},
		{"MAIL", "530 5.7.0 log in first", "unavailable"},
		{"MAIL", "550 5.7.1 sender refused", "permanent"},
		{"MAIL", cut, "unavailable"},
		{"RCPT", "421 4.3.2 closing", "unavailable"},
		{"RCPT", "450 4.7.1 greylisted", "retry"},
		{"RCPT", "550 5.1.1 no such user", "permanent"},
		{"RCPT", cut, "unavailable"},
		{"DATA", "451 4.3.0 later", "retry"},
		{"DATA", "554 5.6.0 no", "permanent"},
		{"DATA", cut, "unavailable"},
		{".", "421 4.3.2 closing", "unavailable"},
		{".", "451 4.3.0 later", "retry"},
		{".", "550 5.7.1 spam", "permanent"},
		{".", "200 fine by me", "sent"},
		{".", cut, "unknown"},
	} {
		t.Run(tt.verb+" "+tt.reply, func(t *testing.T) {
			t.Parallel()
			stub := startStub(t, func(s *smtpStub) {
				s.on = func(_ stubConn, verb, _ string) string {
					if verb == tt.verb {
						return tt.reply
					}
					return ""
				}
			})
			err := testSender(t, stub.server()).Send(t.Context(), testMessage(t, "ada@example.test"))
			if got := verdictOf(err); got != tt.want {
				t.Fatalf("%v is %s, want %s", err, got, tt.want)
			}
			if err != nil && tt.reply != cut && !strings.Contains(err.Error(), tt.reply) {
				t.Errorf("the reply is missing in %q", err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		stub := startStub(t, nil)
		stub.stop()
		err := testSender(t, stub.server()).Send(t.Context(), testMessage(t, "ada@example.test"))
		if verdictOf(err) != "unavailable" {
			t.Errorf("got %v", err)
		}
	})
}

func TestErrorsHideAddresses(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"550 5.1.1 <Ada.Lovelace@Example.test>: Recipient address rejected: User ada.lovelace unknown",
		"550 5.1.1 mailbox ada.lovelace@bücher.test (also known as ADA.LOVELACE) is full",
	} {
		stub := startStub(t, func(s *smtpStub) {
			s.on = func(_ stubConn, verb, _ string) string {
				if verb == "RCPT" {
					return reply
				}
				return ""
			}
		})
		err := testSender(t, stub.server()).Send(t.Context(), testMessage(t, "ada.lovelace@example.test"))
		if err == nil || strings.Contains(strings.ToLower(err.Error()), "lovelace") || !strings.Contains(err.Error(), "550 5.1.1") {
			t.Errorf("error %v", err)
		}
	}
}

func TestSilenceEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		"GREETING": "unavailable", "EHLO": "unavailable", "MAIL": "unavailable", "RCPT": "unavailable", "DATA": "unavailable",
		".": "unknown",
	} {
		for _, how := range []string{"deadline", "cancel"} {
			t.Run(verb+" "+how, func(t *testing.T) {
				t.Parallel()
				reached := make(chan struct{})
				stub := startStub(t, func(s *smtpStub) {
					s.on = func(_ stubConn, v, _ string) string {
						if v == verb {
							close(reached)
							return hang
						}
						return ""
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if how == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
				}
				defer cancel()
				go func() {
					<-reached
					if how == "cancel" {
						cancel()
					}
				}()
				begun := time.Now()
				err := testSender(t, stub.server()).Send(ctx, testMessage(t, "ada@example.test"))
				if got := verdictOf(err); got != want {
					t.Errorf("%v is %s, want %s", err, got, want)
				}
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("took %s", took)
				}
				// What is only the server's silence must be known before the handler's own time is up.
				if how == "deadline" && want == "unavailable" && ctx.Err() != nil {
					t.Error("the whole time was used up")
				}
			})
		}
	}
}

func TestSMTPUTF8(t *testing.T) {
	t.Parallel()
	with := startStub(t, func(s *smtpStub) { s.extensions = []string{"8BITMIME", "SMTPUTF8"} })
	without := startStub(t, nil)

	m := testMessage(t, "пользователь@пример.test")
	if err := testSender(t, with.server()).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got := with.received()[0]
	if got.to != "<пользователь@xn--e1afmkfd.test>" || !strings.Contains(got.from, " SMTPUTF8") {
		t.Errorf("from %q to %q", got.from, got.to)
	}
	err := testSender(t, without.server()).Send(t.Context(), m)
	if verdictOf(err) != "permanent" || !strings.Contains(err.Error(), "SMTPUTF8") {
		t.Errorf("got %v", err)
	}

	// An address that needs it not is sent as ever, whatever the server offers.
	for _, stub := range []*smtpStub{with, without} {
		if err := testSender(t, stub.server()).Send(t.Context(), testMessage(t, "user@bücher.test")); err != nil {
			t.Fatal(err)
		}
		all := stub.received()
		if got := all[len(all)-1]; got.to != "<user@xn--bcher-kva.test>" || strings.Contains(got.from, "SMTPUTF8") {
			t.Errorf("from %q to %q", got.from, got.to)
		}
	}
}

func TestTLSAndLogin(t *testing.T) {
	t.Parallel()
	cert, roots := selfSigned(t)
	for _, tt := range []struct {
		name      string
		configure func(*smtpStub)
		server    func(*server)
		want      string
	}{
		{"required", func(s *smtpStub) { s.cert = cert },
			func(s *server) { s.startTLS, s.roots = startTLSRequired, roots }, "sent"},
		{"required, not offered", func(s *smtpStub) {},
			func(s *server) { s.startTLS, s.roots = startTLSRequired, roots }, "unavailable"},
		{"required, unknown certificate", func(s *smtpStub) { s.cert = cert },
			func(s *server) { s.startTLS = startTLSRequired }, "unavailable"},
		{"opportunistic, unknown certificate", func(s *smtpStub) { s.cert = cert },
			func(s *server) { s.startTLS = startTLSOpportunistic }, "sent"},
		{"opportunistic, not offered", func(s *smtpStub) {},
			func(s *server) { s.startTLS = startTLSOpportunistic }, "sent"},
		{"implicit", func(s *smtpStub) { s.cert, s.tls = cert, true },
			func(s *server) { s.implicitTLS, s.roots = true, roots }, "sent"},
		{"implicit, unknown certificate", func(s *smtpStub) { s.cert, s.tls = cert, true },
			func(s *server) { s.implicitTLS = true }, "unavailable"},
		{"login", func(s *smtpStub) { s.cert, s.login = cert, "ada:secret" },
			func(s *server) { s.startTLS, s.roots, s.user, s.password = startTLSRequired, roots, "ada", "secret" }, "sent"},
		{"login over implicit TLS", func(s *smtpStub) { s.cert, s.tls, s.login = cert, true, "ada:secret" },
			func(s *server) { s.implicitTLS, s.roots, s.user, s.password = true, roots, "ada", "secret" }, "sent"},
		{"login in the clear", func(s *smtpStub) { s.login = "ada:secret" },
			func(s *server) { s.user, s.password = "ada", "secret" }, "sent"},
		{"wrong password", func(s *smtpStub) { s.cert, s.login = cert, "ada:other" },
			func(s *server) { s.startTLS, s.roots, s.user, s.password = startTLSRequired, roots, "ada", "secret" }, "unavailable"},
		{"no login offered", func(s *smtpStub) { s.cert = cert },
			func(s *server) { s.startTLS, s.roots, s.user, s.password = startTLSRequired, roots, "ada", "secret" }, "unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stub := startStub(t, tt.configure)
			srv := stub.server()
			tt.server(&srv)
			s := testSender(t, srv)
			err := s.Send(t.Context(), testMessage(t, "ada@example.test"))
			if got := verdictOf(err); got != tt.want {
				t.Fatalf("%v is %s, want %s", err, got, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

// poll waits until f is true.
func poll(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
