package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// postTo places an order for a customer with this address, and returns the status.
func (s *system) postTo(orders *instance, email string) int {
	s.Helper()
	address, err := json.Marshal(email)
	if err != nil {
		s.Fatal(err)
	}
	body := `{"customer_id":"c-1","email":` + string(address) + `,"currency":"EUR","items":[{"sku":"tea-100","quantity":1,"unit_price":1250}]}`
	res, err := http.Post(orders.url+"/orders", "application/json", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// TestF41AddressesThatGiveOrders: an address that would add a header, a recipient or a command is refused at the door, and
// leaves nothing behind. (What the mailer does with one all the same is shown beside its code.)
func TestF41AddressesThatGiveOrders(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	for _, email := range []string{
		"a@b.test\r\nBcc: c@d.test", "a@b.test\nRCPT TO:<c@d.test>", "a\r@b.test", "a@b.test>", "<a@b.test>", "Ada <a@b.test>",
		"a@b.test,c@d.test", "=?utf-8?q?a=0D=0ABcc:_c?= <a@b.test>", "a\u2028@b.test", ".\r\n@b.test", strings.Repeat("x", 300) + "@b.test",
	} {
		if status := s.postTo(f.orders, email); status < 400 || status > 499 {
			t.Errorf("%q: status %d", email, status)
		}
	}
	for _, email := range []string{"=?utf-8?q?a=0D=0A?=@b.test", "a+b.c'd@b.test"} { // odd, and yet one address each
		if status := s.postTo(f.orders, email); status != 201 {
			t.Errorf("%q: status %d", email, status)
		}
	}
	s.balanced(f.analytics, 0)
	s.blameless()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mails) != 2 || s.mails["=?utf-8?q?a=0D=0A?=@b.test"] != 1 || s.mails["a+b.c'd@b.test"] != 1 {
		t.Errorf("mails %v", s.mails)
	}
}

// TestF46AddressesOfAllPeoples: domains go out in their ASCII form, other local parts as they are to a server that offers
// SMTPUTF8. (Without that offer it is a dead letter at once: shown beside the mailer's code, as are long names.)
func TestF46AddressesOfAllPeoples(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	want := map[string]string{
		"user@bücher.test":         "user@xn--bcher-kva.test",
		"пользователь@пример.test": "пользователь@xn--e1afmkfd.test",
		"अजय@डाटा.भारत":            "अजय@xn--c2bd1gb.xn--h2brj9c",
	}
	for email := range want {
		if status := s.postTo(f.orders, email); status != 201 {
			t.Errorf("%s: status %d", email, status)
		}
	}
	s.balanced(f.analytics, 0)
	s.blameless()
	s.mu.Lock()
	defer s.mu.Unlock()
	for email, address := range want {
		if s.mails[address] != 1 {
			t.Errorf("%s: no mail to %s: %v", email, address, s.mails)
		}
	}
}
