package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/outbox"
)

func TestPostOrder(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := startService(t, map[string]string{"REDIS_URL": server.URL()})
	a := s.post(201, goodOrder, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	o := a.order(t)
	id, err := uuid.Parse(o.ID)
	if err != nil || id.Version() != 7 || a.Header.Get("Location") != "/orders/"+o.ID {
		t.Errorf("id %q, Location %q", o.ID, a.Header.Get("Location"))
	}
	got := fmt.Sprintf("%s %s %s %v %d %s", o.CustomerID, o.Email, o.Currency, o.Items, o.Total, o.Status)
	if want := "c-42 ada@example.com EUR [{tea-100 2 1250}] 2500 placed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if o.CreatedAt.Location() != time.UTC || time.Since(o.CreatedAt).Abs() > time.Minute {
		t.Errorf("created_at %s", o.CreatedAt)
	}
	if a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("headers %v", a.Header)
	}
	s.wantRows(1)

	// The event has the whole order as it was answered, and goes out by itself.
	db := redis.NewClient(server.Options())
	t.Cleanup(func() { db.Close() })
	var entries []redis.XMessage
	eventually(t, "the event is in the stream", func() bool {
		entries = db.XRange(t.Context(), "orders", "-", "+").Val()
		return len(entries) == 1
	})
	var eventID string
	if err := s.database.QueryRow(t.Context(), `select event_id from orders`).Scan(&eventID); err != nil {
		t.Fatal(err)
	}
	fields := entries[0].Values
	if e, err := uuid.Parse(eventID); err != nil || e.Version() != 7 || fields["id"] != eventID {
		t.Errorf("event id %q in the order, %q in the stream", eventID, fields["id"])
	}
	for field, want := range map[string]string{"specversion": "1.0", "source": "/orders", "type": "order.placed.v1", "subject": o.ID, "partitionkey": "c-42",
		"datacontenttype": "application/json", "dataschema": event.SchemaOrderPlaced, "data": string(a.body), "time": o.CreatedAt.Format(time.RFC3339Nano)} {
		if fields[field] != want {
			t.Errorf("field %s of the event is %q, want %q", field, fields[field], want)
		}
	}
	if trace, _ := fields["traceparent"].(string); !strings.HasPrefix(trace, "00-0af7651916cd43dd8448eb211c80319c-") || strings.Contains(trace, "b7ad6b7169203331") {
		t.Errorf("traceparent %q is not a child of the request's", trace)
	}
}

// TestEventIsAsTheOutboxWritesIt holds the insert's own SQL to outbox.Add.
func TestEventIsAsTheOutboxWritesIt(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	a := s.post(201, goodOrder)
	o := a.order(t)
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, s.database, func(tx pgx.Tx) error {
		return outbox.Add(ctx, tx, broker.Event{ID: "by-add", Source: event.SourceOrders, Type: event.TypeOrderPlaced, Time: o.CreatedAt, Subject: o.ID,
			PartitionKey: o.CustomerID, DataContentType: event.ContentType, DataSchema: event.SchemaOrderPlaced, Data: a.body})
	})
	if err != nil {
		t.Fatal(err)
	}
	same := s.count(`select count(*) from (select distinct to_jsonb(e) - '{id,event_id,trace_parent,created_at,published_at,entry_id}'::text[] from outbox e) as rows`)
	if same != 1 {
		t.Error("the outbox row differs from one that outbox.Add makes")
	}
}

func TestPostOrderRefuses(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	large := orderWith(t, "{", "{"+strings.Repeat(" ", maxBody-len(goodOrder)))
	s.post(201, large)
	for name, tc := range map[string]struct {
		body    string
		headers []string
		status  int
		detail  string
	}{
		"empty":            {"", []string{"Content-Type", "application/json"}, 400, "empty"},
		"malformed":        {"{", nil, 400, "JSON"},
		"out of range":     {"{}", nil, 422, "limits"},
		"one byte more":    {large + " ", nil, 413, "65536"},
		"no type":          {goodOrder, []string{"Content-Type", ""}, 415, "curl --json"},
		"form":             {goodOrder, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "curl --json"},
		"other JSON":       {goodOrder, []string{"Content-Type", "application/merge-patch+json"}, 415, "curl --json"},
		"other charset":    {goodOrder, []string{"Content-Type", "application/json; charset=latin1"}, 415, "curl --json"},
		"gzip":             {goodOrder, []string{"Content-Encoding", "gzip"}, 415, "Content-Encoding"},
		"empty key":        {goodOrder, []string{"Idempotency-Key", ""}, 400, "Idempotency-Key"},
		"key with a space": {goodOrder, []string{"Idempotency-Key", "a b"}, 400, "Idempotency-Key"},
		"key with ü":       {goodOrder, []string{"Idempotency-Key", "ü"}, 400, "Idempotency-Key"},
		"long key":         {goodOrder, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "Idempotency-Key"},
		"two keys":         {goodOrder, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "Idempotency-Key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			p := s.post(tc.status, tc.body, tc.headers...).problem(t)
			if !strings.Contains(p.Detail, tc.detail) || p.Title != http.StatusText(tc.status) {
				t.Errorf("got %+v, want a detail with %q", p, tc.detail)
			}
		})
	}
	s.post(201, goodOrder, "Content-Type", "Application/JSON; charset=UTF-8", "Idempotency-Key", strings.Repeat("~", 255))
	s.wantRows(2)
	if a := s.do(http.MethodDelete, "/orders", ""); a.StatusCode != 405 || a.problem(t).Status != 405 {
		t.Errorf("DELETE: %s", a.Status)
	}
	if p := s.get(404, "/nothing").problem(t); p.Status != 404 {
		t.Errorf("no problem: %v", p)
	}
	p := s.post(422, `{"customer_id":"","email":"x","currency":"EUR","items":[]}`).problem(t)
	if len(p.Errors) != 3 || p.Errors[0].Field != "customer_id" || p.Errors[1].Field != "email" || p.Errors[2].Field != "items" {
		t.Errorf("errors %v", p.Errors)
	}
}

// TestEndlessBody sends a chunked body that never ends: the answer comes soon, and the sender is cut off.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	body, feed := io.Pipe()
	sent := make(chan int)
	go func() {
		n := 0
		for chunk := bytes.Repeat([]byte(" "), 32<<10); n < 200<<20; n += len(chunk) {
			if _, err := feed.Write(chunk); err != nil {
				break
			}
		}
		sent <- n
	}()
	req, err := http.NewRequest(http.MethodPost, s.url+"/orders", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("got %s, want 413", res.Status)
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// TestTooLargeIsSaidBeforeItIsSent: a client that asks first is told at once.
func TestTooLargeIsSaidBeforeItIsSent(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 200000000\r\nExpect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 413 ") {
		t.Errorf("got %q, %v; want 413", line, err)
	}
}

// TestSlowBodies has many clients that send next to nothing. They are cut off in time, and the rest is served meanwhile.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	var wg sync.WaitGroup
	for range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		wg.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(60 * time.Second))
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 408 || !res.Close {
				t.Errorf("a slow client got %s, %v", res.Status, err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("a slow client is not cut off: %v", err)
			}
		})
	}
	for range 20 {
		s.post(201, goodOrder)
	}
	wg.Wait()
	s.wantRows(20)
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := startService(t, map[string]string{"API_TOKEN": "secret"})
	a := s.post(401, goodOrder)
	if a.problem(t); a.Header.Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
	s.post(401, goodOrder, "Authorization", "Bearer wrong")
	s.get(401, "/orders?customer_id=c-42")
	s.get(401, "/orders/"+uuid.NewString())
	s.wantRows(0)
	id := s.post(201, goodOrder, "Authorization", "Bearer secret").order(t).ID
	s.get(200, "/orders/"+id, "Authorization", "Bearer secret")
	s.get(200, "/healthz")
	s.get(200, "/metrics")
}

func TestGetOrder(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	a := s.post(201, `{"customer_id":"c-42","email":"ada@example.com","currency":"JPY","items":[{"sku":"b","quantity":2,"unit_price":5},{"sku":"a","quantity":1,"unit_price":0}]}`)
	got := s.get(200, a.Header.Get("Location"))
	if !bytes.Equal(got.body, a.body) || got.Header.Get("X-Cache") != "miss" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s\nheaders %v", got.body, a.body, got.Header)
	}
	s.get(200, "/orders/"+strings.ToUpper(a.order(t).ID))
	if a := s.do(http.MethodHead, a.Header.Get("Location"), ""); a.StatusCode != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %s", a.Status)
	}
	for _, path := range []string{"/orders/" + uuid.NewString(), "/orders/1", "/orders/x'y", "/orders/%00", "/orders/{" + uuid.NewString() + "}", "/orders/" + strings.Repeat("x", 36)} {
		s.get(404, path).problem(t)
	}
}

func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	s.post(201, goodOrder, "Idempotency-Key", "k")
	s.post(201, goodOrder, "Idempotency-Key", "k")
	s.post(422, `{}`)
	metrics := string(s.get(200, "/metrics").body)
	for _, want := range []string{"orderfanout_orders_accepted_total 1\n", "orderfanout_outbox_waiting 1\n", "orderfanout_outbox_oldest_seconds 0.", "orderfanout_outbox_broker_up ",
		`orderfanout_trim_blocked{group="analytics"} 0`, `orderfanout_trim_blocked{group="bonus"} 0`, `orderfanout_trim_blocked{group="mailer"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	s.get(200, "/healthz")
	// Redis is away all the time: that is no reason not to take orders.
	eventually(t, "ready", func() bool { return s.do(http.MethodGet, "/readyz", "").StatusCode == 200 })
	eventually(t, "readyz shows that Redis is away", func() bool {
		return strings.Contains(string(s.get(200, "/readyz").body), `"redis":"no connection"`)
	})
	eventually(t, "the metrics show that Redis is away", func() bool {
		return strings.Contains(string(s.get(200, "/metrics").body), "orderfanout_outbox_broker_up 0\n")
	})
}

// TestDrain ends the service while an order is on its way: it is answered, and its event published.
func TestDrain(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s := startService(t, map[string]string{"REDIS_URL": server.URL()})
	s.post(201, goodOrder)
	tx := s.hold(`lock table orders in exclusive mode`)
	answered := make(chan int, 1)
	go func() {
		a, err := s.try(context.Background(), http.MethodPost, "/orders", goodOrder)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		answered <- a.StatusCode
	}()
	eventually(t, "the order waits for the lock", func() bool { return s.waiters("orders") == 1 })
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	eventually(t, "the service takes no more", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != 201 {
		t.Errorf("the last order was answered with %d", status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.wantRows(2)
	if n := s.count(`select count(*) from outbox where published_at is null`); n != 0 {
		t.Errorf("%d events are not published", n)
	}
}
