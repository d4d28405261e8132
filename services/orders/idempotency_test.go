package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver/servertest"
)

const sameOrderSpelledOtherwise = ` { "items" : [{"unit_price":1250,"quantity":2,"sku":"tea\u002d100"}], "currency":"EUR","email":"ada\u0040example.com","customer_id":"c-42"}`

func TestReplay(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	first := s.post(201, goodOrder, "Idempotency-Key", "k1")
	for _, body := range []string{goodOrder, sameOrderSpelledOtherwise} {
		again := s.post(201, body, "Idempotency-Key", "k1")
		if string(again.body) != string(first.body) || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("got  %s %v\nwant %s", again.body, again.Header, first.body)
		}
	}
	if first.Header.Get("Idempotency-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
	s.wantRows(1)

	// The outbox row is gone after a while; the answer stays.
	s.exec(`delete from outbox`)
	if again := s.post(201, goodOrder, "Idempotency-Key", "k1"); string(again.body) != string(first.body) {
		t.Errorf("got  %s\nwant %s", again.body, first.body)
	}
	for what, body := range map[string]string{
		"quantity": orderWith(t, ":2,", ":3,"),
		"email":    orderWith(t, "ada@", "eve@"),
		"items":    orderWith(t, `[{`, `[{"sku":"tea-100","quantity":2,"unit_price":1250},{`),
	} {
		if p := s.post(422, body, "Idempotency-Key", "k1").problem(t); !strings.Contains(p.Detail, "different order") {
			t.Errorf("other %s: %s", what, p.Detail)
		}
	}
	// A key belongs to a customer, and to the bytes that it is made of.
	s.post(201, orderWith(t, "c-42", "c-43"), "Idempotency-Key", "k1")
	s.post(201, goodOrder, "Idempotency-Key", "K1")
	s.post(201, goodOrder, "Idempotency-Key", `"k1"`)
	s.post(201, goodOrder)
	if n := s.count(`select count(*) from orders`); n != 5 {
		t.Errorf("%d orders, want 5", n)
	}
}

// TestEqualRequestsAtOnce is the double click: many equal requests at the same moment, time after time.
func TestEqualRequestsAtOnce(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	const rounds, clients = 10, 20
	for round := range rounds {
		key := fmt.Sprintf("key-%d", round)
		start := make(chan struct{})
		var mu sync.Mutex
		fresh, bodies := 0, map[string]bool{}
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				<-start
				a, err := s.try(context.Background(), http.MethodPost, "/orders", goodOrder, "Idempotency-Key", key)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case a.StatusCode == 409 && a.Header.Get("Retry-After") == "1":
				case a.StatusCode == 201:
					bodies[string(a.body)] = true
					if a.Header.Get("Idempotency-Replayed") == "" {
						fresh++
					}
				default:
					t.Errorf("got %s %s", a.Status, a.body)
				}
			})
		}
		close(start)
		wg.Wait()
		if fresh != 1 || len(bodies) != 1 {
			t.Errorf("%d first answers and %d different bodies, want one", fresh, len(bodies))
		}
	}
	s.wantRows(rounds)
}

func TestKeyInUse(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	err := pgx.BeginFunc(t.Context(), s.database, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('c-42 k1', 0))`); err != nil {
			return err
		}
		start := time.Now()
		a := s.post(409, goodOrder, "Idempotency-Key", "k1")
		if a.problem(t); a.Header.Get("Retry-After") == "" || time.Since(start) > writeTimeout {
			t.Errorf("Retry-After %q after %s", a.Header.Get("Retry-After"), time.Since(start))
		}
		s.post(201, goodOrder, "Idempotency-Key", "k2")
		s.post(201, goodOrder)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.post(201, goodOrder, "Idempotency-Key", "k1")
	s.wantRows(3)
}

// TestKeyLostToTheSnapshot has the first request commit after the second's statement began, and before it takes the lock: it
// inserts nothing, sees nothing, and still has to find the order.
func TestKeyLostToTheSnapshot(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	first := s.post(201, goodOrder, "Idempotency-Key", "k1")
	// A key row that no snapshot of a statement shows: it is there for the unique index only, until the writer commits.
	tx := s.hold(`insert into idempotency_keys (customer_id, key, request_hash, order_id)
		select customer_id, 'k2', request_hash, order_id from idempotency_keys where key = 'k1'`)
	answered := make(chan answer, 1)
	go func() {
		a, err := s.try(context.Background(), http.MethodPost, "/orders", goodOrder, "Idempotency-Key", "k2")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	eventually(t, "the second request meets the row", func() bool {
		return s.count(`select count(*) from pg_locks where not granted and locktype = 'transactionid'`) == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.StatusCode != 201 || string(a.body) != string(first.body) || a.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("got %s %s, want a replay of %s", a.Status, a.body, first.body)
	}
	s.wantRows(1)
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	first := s.post(201, goodOrder, "Idempotency-Key", "k1").order(t)
	s.exec(`update idempotency_keys set created_at = now() - interval '23 hours 59 minutes'`)
	if again := s.post(201, goodOrder, "Idempotency-Key", "k1").order(t); again.ID != first.ID {
		t.Error("a key of less than 24 h is forgotten")
	}
	s.exec(`update idempotency_keys set created_at = now() - interval '24 hours 1 minute'`)
	other := orderWith(t, ":2,", ":3,")
	a := s.post(201, other, "Idempotency-Key", "k1")
	if a.order(t).ID == first.ID || a.Header.Get("Idempotency-Replayed") != "" {
		t.Error("a key of more than 24 h still counts")
	}
	if again := s.post(201, other, "Idempotency-Key", "k1"); again.order(t).ID != a.order(t).ID {
		t.Error("the new key does not count")
	}
	s.wantRows(2)
}

// Two requests meet a key that has expired; the second comes to forget it when the first has made it anew.
func TestNewKeyIsNotForgotten(t *testing.T) {
	t.Parallel()
	url := servertest.Database(t)
	s := newRunningStore(t, servertest.DatabaseAs(t, url, "orders"))
	p := newTestPlacement(t, "c", "k1")
	if _, err := s.place(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := forgetKey(t.Context(), conn, newTestPlacement(t, "c", "k1")); !errors.Is(err, errKeyGone) {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), `select count(*) from idempotency_keys`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d keys, %v; want the new one", n, err)
	}
}

func TestOldKeysAreRemoved(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	id := s.post(201, goodOrder, "Idempotency-Key", "young").order(t).ID
	s.exec(`insert into idempotency_keys (customer_id, key, request_hash, order_id, created_at)
		select 'c-42', 'old ' || n, '', $1, now() - interval '25 hours' from generate_series(1, $2) as n`, id, 2*keyBatch+1)
	pool := newPool(t, s.env["DATABASE_URL"])
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		forgetKeys(ctx, pool, discard)
		close(ended)
	}()
	eventually(t, "the old keys are gone", func() bool { return s.count(`select count(*) from idempotency_keys`) == 1 })
	stop()
	<-ended
	if n := s.count(`select count(*) from idempotency_keys where key = 'young'`); n != 1 {
		t.Error("the young key is gone")
	}
	s.wantRows(1)
}

// FuzzRequestHash holds the comparison behind the Idempotency-Key to what it stands for: two requests have the same hash if, and only
// if, they ask for the same order.
func FuzzRequestHash(f *testing.F) {
	f.Add([]byte(goodOrder), []byte(strings.ReplaceAll(goodOrder, ",", " ,\n")))
	f.Add([]byte(goodOrder), []byte(strings.Replace(goodOrder, "c-42", "c-43", 1)))
	f.Add([]byte(goodOrder), []byte(strings.Replace(goodOrder, "c-42", `\u0063-42`, 1)))
	f.Add([]byte(goodOrder), []byte(strings.Replace(goodOrder, "c-42", `c\u002d42\ufffd`, 1)))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		a, refusedA := decodeOrder(one)
		b, refusedB := decodeOrder(other)
		if refusedA != nil || refusedB != nil {
			return
		}
		hashA, err := a.hash()
		if err != nil {
			t.Fatal(err)
		}
		hashB, err := b.hash()
		if err != nil {
			t.Fatal(err)
		}
		if same := reflect.DeepEqual(a, b); same != bytes.Equal(hashA, hashB) {
			t.Errorf("the same order: %t, the same hash: %t\n%s\n%s", same, !same, one, other)
		}
	})
}
