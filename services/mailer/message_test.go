package main

import (
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/event"
)

// parts returns a mail's header and its bodies by media type.
func parts(t *testing.T, content string) (mail.Header, map[string]string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || media != "multipart/alternative" {
		t.Fatalf("%s, %v", media, err)
	}
	bodies := make(map[string]string)
	r := multipart.NewReader(m.Body, params["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return m.Header, bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Header.Get("Content-Transfer-Encoding") != "quoted-printable" {
			t.Fatalf("part header %v", p.Header)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			t.Fatal(err)
		}
		media, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type"))
		bodies[media] = string(body)
	}
}

var encodedWord = regexp.MustCompile(`=\?[^?]*\?[^?]*\?[^?]*\?=`)

// checkLines holds a mail to the limits of its lines.
func checkLines(t *testing.T, content string) {
	t.Helper()
	for line := range strings.SplitSeq(content, "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
			t.Errorf("line of %d bytes: %.80q", len(line), line)
		}
		for _, word := range encodedWord.FindAllString(line, -1) {
			if len(word) > 75 {
				t.Errorf("encoded word of %d bytes", len(word))
			}
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	m := testMessage(t, "ada@bücher.test")
	checkLines(t, string(m.content))
	header, bodies := parts(t, string(m.content))
	subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
	if err != nil || subject != "Your order – 25.00 EUR" {
		t.Errorf("subject %q, %v", subject, err)
	}
	for name, want := range map[string]string{
		"Message-Id":     "<0198a7c2-0000-7000-8000-00000000000e@shop.test>",
		"From":           `"Tee & Mehr" <orders@shop.test>`,
		"To":             "<ada@xn--bcher-kva.test>",
		"Auto-Submitted": "auto-generated",
		"Mime-Version":   "1.0",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, media := range []string{"text/plain", "text/html"} {
		for _, want := range []string{"tea-100", "12.50 EUR", "25.00 EUR", "0198a7c2-0000-7000-8000-000000000001", "29 November 2026, 17:35 UTC"} {
			if !strings.Contains(bodies[media], want) {
				t.Errorf("%s has no %q:\n%s", media, want, bodies[media])
			}
		}
	}
	if !strings.Contains(bodies["text/plain"], "2 × tea-100") {
		t.Error("not UTF-8:", bodies["text/plain"])
	}
}

// Whatever an event says, the mail has the one recipient and the headers that we gave it.
func TestMessageTakesNoOrdersFromData(t *testing.T) {
	t.Parallel()
	evil := "x\r\nBcc: c@d.test\r\n\r\n.\r\nMAIL FROM:<a@b.test>"
	from, err := parseMailbox("orders@shop.test")
	if err != nil {
		t.Fatal(err)
	}
	o := testOrder("ada@example.test")
	o.ID, o.Currency, o.Items[0].SKU = evil, evil, "<b>"+evil
	m, err := newMessage(from, evil, o, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stub := startStub(t, nil)
	if err := testSender(t, stub.server()).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got := stub.received()
	if len(got) != 1 || got[0].to != "<ada@example.test>" {
		t.Fatalf("received %+v", got)
	}
	checkLines(t, got[0].content)
	header, bodies := parts(t, got[0].content)
	for _, name := range []string{"Bcc", "Cc"} {
		if header.Get(name) != "" {
			t.Errorf("%s: %s", name, header.Get(name))
		}
	}
	if id := header.Get("Message-Id"); !regexp.MustCompile(`^<[A-Za-z0-9%._+~-]+@shop\.test>$`).MatchString(id) {
		t.Errorf("Message-ID %q", id)
	}
	if len(header) != 8 {
		t.Errorf("headers %v", header)
	}
	if text := bodies["text/plain"]; !strings.Contains(text, "\r\n.\r\n") && !strings.Contains(text, "\n.\n") {
		t.Errorf("the line with a dot is gone: %q", text)
	}
	if strings.Contains(bodies["text/html"], "<b>") {
		t.Error("html is not escaped")
	}

	o = testOrder("a@b.test\r\nBcc: c@d.test")
	if _, err := newMessage(from, "e", o, time.Now()); err == nil || strings.Contains(err.Error(), "d.test") {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"", strings.Repeat("x", 129)} {
		if _, err := newMessage(from, id, testOrder("a@b.test"), time.Now()); err == nil {
			t.Errorf("event id of %d bytes was taken", len(id))
		}
	}
}

// A long name with several spaces, letters of two to four bytes, and nowhere to fold but at encoded words.
func TestMessageLongName(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("Ж", 80) + "  🍵   " + strings.Repeat("щ", 110) + " &"
	from := mailbox{name: name, local: "orders", domain: "shop.test"}
	m, err := newMessage(from, "e", testOrder("ada@example.test"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, string(m.content))
	header, _ := parts(t, string(m.content))
	got, err := header.AddressList("From")
	if err != nil || len(got) != 1 || got[0].Name != name || got[0].Address != "orders@shop.test" {
		t.Errorf("From is %q, %v", got, err)
	}
}

func TestMessageBig(t *testing.T) {
	t.Parallel()
	o := testOrder("ada@example.test")
	o.Items, o.Total = nil, 0
	for range 100 {
		o.Items = append(o.Items, event.Item{SKU: strings.Repeat("x", 64), Quantity: 10_000, UnitPrice: 1_000_000})
		o.Total += 10_000_000_000
	}
	m, err := newMessage(mailbox{local: "o", domain: "shop.test"}, "e", o, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, string(m.content))
	_, bodies := parts(t, string(m.content))
	if n := strings.Count(bodies["text/plain"], o.Items[0].SKU); n != 100 {
		t.Errorf("%d items, want 100", n)
	}
}

func TestMoney(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		minor          int64
		currency, want string
	}{
		{0, "EUR", "0.00 EUR"}, {5, "EUR", "0.05 EUR"}, {1250, "EUR", "12.50 EUR"}, {1_000_000_000_000, "USD", "10000000000.00 USD"},
		{1250, "JPY", "1250 JPY"}, {0, "JPY", "0 JPY"}, {1250, "KWD", "1.250 KWD"}, {7, "CLF", "0.0007 CLF"},
	} {
		if got := money(tt.minor, tt.currency); got != tt.want {
			t.Errorf("money(%d, %s) = %s, want %s", tt.minor, tt.currency, got, tt.want)
		}
	}
}
