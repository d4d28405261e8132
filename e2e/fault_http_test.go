package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/internal/link"
)

// try places an order of n items with an Idempotency-Key, for as long as the client is patient, and returns the status: 0 where
// there was no answer.
func (s *system) try(orders *instance, customer, key string, n int, patience time.Duration) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := fmt.Sprintf(`{"customer_id":%q,"email":"%s@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":%d,"unit_price":1250}]}`, customer, customer, n)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, orders.url+"/orders", strings.NewReader(body))
	if err != nil {
		s.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0
	}
	return res.StatusCode
}

// TestF35AnswerOfTheCommitLost: the database's answers are lost now and then, and clients give up after milliseconds. Each
// order, tried with its key until there is a clear answer, is there once, with its event, and the work is done once.
func TestF35AnswerOfTheCommitLost(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	l := s.link(s.postgresAddr())
	var asked, lost atomic.Int64
	l.Judge(func(request []byte) link.Fate {
		drop := bytes.Contains(request, []byte("@example.com")) && asked.Add(1)%7 == 0
		if drop {
			lost.Add(1)
		}
		return link.Fate{DropAnswer: drop}
	})
	orders, analytics := s.run("orders", "o", databaseVia(l, "orders")), s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	const clients, each = 5, 20
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				status, patience := 0, 5*time.Millisecond
				if i%2 == 0 {
					patience = 10 * time.Second
				}
				for ; status != http.StatusCreated; patience *= 2 {
					if status = s.try(orders, fmt.Sprint("c-", c), fmt.Sprint("key-", i), 1, patience); status != 0 && status != 201 && status != 409 && status != 503 {
						t.Errorf("status %d", status)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if lost.Load() < 5 {
		t.Errorf("only %d answers were lost", lost.Load())
	}
	if n := s.count("select count(*) from orders"); n != clients*each {
		t.Errorf("%d orders, want %d", n, clients*each)
	}
	if n := s.count("select count(*) from pg_stat_activity where usename = 'orders' and state like 'idle in transaction%'"); n != 0 {
		t.Errorf("%d sessions are idle in a transaction", n)
	}
	s.balanced(analytics, 0)
	s.blameless()
}

// TestF40LargestOrder: the largest order that is accepted passes through everything, with its neighbours.
func TestF40LargestOrder(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	f := s.runAll()
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"sku":%q,"quantity":10000,"unit_price":10000}`, fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 60))))
	}
	body := fmt.Sprintf(`{"customer_id":%q,"email":"%s@example.com","currency":"EUR","items":[%s]}`,
		strings.Repeat("c", 64), strings.Repeat("e", 60), strings.Join(items, ","))
	body += strings.Repeat(" ", 64<<10-len(body))
	for _, want := range []int{201, 413} {
		s.mustPost(f.orders, "c-1", 1)
		res, err := http.Post(f.orders.url+"/orders", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes: %s %.200s", len(body), res.Status, answer)
		}
		body += " "
	}
	s.mustPost(f.orders, "c-1", 1)
	s.balanced(f.analytics, 0)
	s.blameless()
	if n := s.count("select count(*) from orders"); n != 4 {
		t.Errorf("%d orders, want 4", n)
	}
}

// apiToken must not be in any log; see wantDiscreet.
const apiToken = "token-that-nobody-guesses"

// TestDiscretion: tokens are asked for, a mail server names the address that it refuses, a client sends what is not an order: at
// the level debug no log has the token or the address in it.
func TestDiscretion(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	env := []string{"API_TOKEN=" + apiToken, "LOG_LEVEL=debug"}
	orders, bonus, analytics := s.run("orders", "o", env...), s.run("bonus", "b", env...), s.run("analytics", "a", env...)
	s.run("mailer", "m", env...)
	s.refuse.Store(true)
	ask := func(want int, method, url, token, body string) {
		t.Helper()
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s %s: %s, want %d", method, url, res.Status, want)
		}
	}
	good := `{"customer_id":"c-1","email":"c-1@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":1,"unit_price":1250}]}`
	for _, url := range []string{orders.url + "/orders/x", bonus.url + "/customers/c-1/bonus", analytics.url + "/stats"} {
		ask(http.StatusUnauthorized, http.MethodGet, url, apiToken+"x", "")
	}
	ask(http.StatusCreated, http.MethodPost, orders.url+"/orders", apiToken, good)
	ask(http.StatusBadRequest, http.MethodPost, orders.url+"/orders", apiToken, good[1:])
	ask(http.StatusOK, http.MethodGet, bonus.url+"/customers/c-1/bonus", apiToken, "")
	ask(http.StatusOK, http.MethodGet, analytics.url+"/stats", apiToken, "")
	s.eventually("the mail is a dead letter", func() bool {
		return s.client.XLen(context.Background(), "{orders}:dead:mailer").Val() == 1
	})
}
