package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/internal/problem"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var discard = slog.New(slog.DiscardHandler)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// service is a running orders service: the real program in this process.
type service struct {
	t        *testing.T
	url      string            // of its API
	database *pgxpool.Pool     // as the owner
	env      map[string]string // what it was started with
	stop     func() error      // ends it and returns what run returned
}

// startService starts the service on a database and a Redis. env overrides what it would be given.
func startService(t *testing.T, env map[string]string) *service {
	t.Helper()
	return startOn(t, servertest.Database(t), env)
}

// startOn starts the service on the database with that owner's URL. Without a REDIS_URL in env it has no Redis at all.
func startOn(t *testing.T, ownerURL string, env map[string]string) *service {
	t.Helper()
	s := &service{t: t, env: map[string]string{
		"DATABASE_URL": servertest.DatabaseAs(t, ownerURL, "orders"),
		"REDIS_URL":    "redis://127.0.0.1:1", // nobody listens there
		"HTTP_ADDR":    "127.0.0.1:0",
	}}
	maps.Copy(s.env, env)
	pool, err := pgxpool.New(t.Context(), ownerURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.database = pool
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, func(name string) string { return s.env[name] }, in)
		in.Close()
		ended <- err
	}()
	addr, logged := make(chan string, 1), make(chan struct{})
	go func() {
		s.readLog(out, addr)
		close(logged)
	}()
	s.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		<-logged
		return err
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the service ended with %v", err)
		}
	})
	select {
	case a := <-addr:
		s.url = "http://" + a
	case err := <-ended:
		ended <- err
		t.Fatalf("the service ended at once: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the service does not listen")
	}
	return s
}

// readLog passes the log on to the test's, finds the address in it, and holds it to be JSON without an address of a person.
func (s *service) readLog(out io.Reader, addr chan<- string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Msg, Addr string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			s.t.Errorf("not a JSON line in the log: %s", lines.Bytes())
		}
		if bytes.Contains(lines.Bytes(), []byte("ada@")) {
			s.t.Errorf("a mail address in the log: %s", lines.Bytes())
		}
		if line.Msg == "listening" {
			addr <- line.Addr
		}
		s.t.Logf("%s", lines.Bytes())
	}
}

// answer is what came back for a request.
type answer struct {
	*http.Response
	body []byte
}

func (a answer) problem(t *testing.T) problem.Problem {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.Header.Get("Content-Type") != "application/problem+json" || p.Status != a.StatusCode {
		t.Fatalf("not a problem: %s %s %s", a.Status, a.Header.Get("Content-Type"), a.body)
	}
	return p
}

func (a answer) order(t *testing.T) event.OrderPlaced {
	t.Helper()
	o, err := event.DecodeOrderPlaced(a.body)
	if err != nil {
		t.Fatalf("not an order: %s %s: %v", a.Status, a.body, err)
	}
	return o
}

// do sends a request; headers are name, value, name, value. It fails the test, and lets it go on, where no answer comes: it may be
// called from any goroutine.
func (s *service) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(context.Background(), method, path, body, headers...)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return answer{&http.Response{Header: http.Header{}}, nil}
	}
	return a
}

// try is do for a request that may fail.
func (s *service) try(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" && !slices.Contains(headers, "Content-Type") {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil {
		described().hold(s.t, req, res, data)
	}
	return answer{res, data}, err
}

// client keeps more idle connections than the default, and gives up only where a service hangs.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 60 * time.Second}

// post posts an order and expects the status.
func (s *service) post(want int, body string, headers ...string) answer {
	s.t.Helper()
	a := s.do(http.MethodPost, "/orders", body, headers...)
	if a.StatusCode != want {
		s.t.Errorf("POST /orders: %s %s, want %d", a.Status, a.body, want)
	}
	return a
}

// get expects the status.
func (s *service) get(want int, path string, headers ...string) answer {
	s.t.Helper()
	a := s.do(http.MethodGet, path, "", headers...)
	if a.StatusCode != want {
		s.t.Errorf("GET %s: %s %s, want %d", path, a.Status, a.body, want)
	}
	return a
}

// count runs a query that returns one number, as the owner.
func (s *service) count(query string, args ...any) (n int) {
	s.t.Helper()
	if err := s.database.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *service) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.database.Exec(context.Background(), query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// hold opens a transaction of the owner that has run the statement. It is rolled back at the end of the test, if not before.
func (s *service) hold(statement string) pgx.Tx {
	s.t.Helper()
	return hold(s.t, s.database, statement)
}

func hold(t *testing.T, pool *pgxpool.Pool, statement string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // an error where it has ended
	if _, err := tx.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return tx
}

// wantRows fails the test where the database has not that many orders, each with its items and its event.
func (s *service) wantRows(want int) {
	s.t.Helper()
	orders := s.count(`select count(*) from orders`)
	whole := s.count(`select count(*) from orders o join outbox e on e.event_id = o.event_id and e.subject = o.id::text
		where exists (select from order_items i where i.order_id = o.id)`)
	events := s.count(`select count(*) from outbox`)
	if orders != want || whole != want || events != want {
		s.t.Errorf("%d orders, %d whole ones, %d events; want %d of each", orders, whole, events, want)
	}
}

// eventually polls until ok, and fails the test where that takes too long.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func orderOf(customer string, n int) string {
	return fmt.Sprintf(`{"customer_id":%q,"email":"ada@example.com","currency":"EUR","items":[{"sku":"tea-%d","quantity":1,"unit_price":%d}]}`, customer, n, n)
}
