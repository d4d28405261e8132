package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/books"
	"example.com/orderfanout/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const testOrder = "01a228be-4b34-7d40-bb91-ec87c5f1a6a8"

// testEvent is a UUIDv7 that was made at testStart.
var (
	testStart = time.Now().UTC()
	testEvent = fmt.Sprintf("%08x-%04x-7d41-bde0-913dda1b84fa", testStart.UnixMilli()>>16, testStart.UnixMilli()&0xffff)
)

// world is a Postgres and a Redis, which the commands reach as the role and the user fanout.
type world struct {
	*testing.T
	db    *pgxpool.Pool
	redis *redis.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url, server := servertest.Database(t), servertest.Redis(t)
	w := &world{T: t, redis: redis.NewClient(server.Options())}
	t.Cleanup(func() { _ = w.redis.Close() })
	var err error
	if w.db, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	acl, err := os.ReadFile("../../deploy/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(acl)) {
		if rule, ok := strings.CutPrefix(line, "user fanout "); ok {
			w.do("ACL SETUSER fanout " + rule)
		}
	}
	for _, g := range groups {
		w.do("XGROUP CREATE orders " + g + " 0 MKSTREAM")
	}
	t.Setenv("DATABASE_URL", servertest.DatabaseAs(t, url, "fanout"))
	t.Setenv("REDIS_URL", "redis://fanout:fanout@"+server.Addr())
	return w
}

// do runs a Redis command, given as words.
func (w *world) do(command string) string {
	w.Helper()
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, word)
	}
	reply, err := w.redis.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		w.Fatalf("%s: %v", command, err)
	}
	s, _ := reply.(string)
	return s
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(context.Background(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// accept stores the test's order.
func (w *world) accept() {
	w.Helper()
	w.exec(`insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
		values ($1, 'c-42', 'ada@example.com', 'EUR', 2500, 'placed', now(), $2)`, testOrder, testEvent)
	w.exec(`insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data)
		values ($1, '/orders', 'order.placed.v1', now(), $2, 'c-42', 'application/json', '', '', '{}')`, testEvent, testOrder)
}

// publish does what the relay does.
func (w *world) publish() string {
	w.Helper()
	entry := w.do("XADD orders * id " + testEvent + " type order.placed.v1 subject " + testOrder)
	w.exec(`update outbox set published_at = now(), entry_id = $1`, entry)
	return entry
}

// work does a group's work, and leaves the entry pending.
func (w *world) work(group string) {
	w.Helper()
	w.do("XREADGROUP GROUP " + group + " one STREAMS orders >")
	switch group {
	case "mailer":
		w.do("SET mailer:sent:" + testEvent + " sent")
	case "bonus":
		w.exec(`insert into bonus_ledger (event_id, order_id, customer_id, points) values ($1, $2, 'c-42', 25)`, testEvent, testOrder)
		w.exec(`insert into bonus_accounts values ('c-42', 25)`)
	case "analytics":
		day := time.Now().UTC()
		w.do("SADD analytics:{stats}:counted:" + testStart.Format(time.DateOnly) + " " + testEvent)
		w.do("ZADD analytics:{stats}:days " + day.Format("20060102 2006-01-02"))
		for _, key := range []string{"totals", "day:" + day.Format(time.DateOnly)} {
			w.do("HINCRBY analytics:{stats}:" + key + " orders 1")
			w.do("HINCRBY analytics:{stats}:" + key + " revenue:EUR 2500")
		}
	}
}

func (w *world) ack(group, entry string) { w.Helper(); w.do("XACK orders " + group + " " + entry) }

// result is what a command printed, and its exit code.
type result struct {
	out, err string
	code     int
}

func (w *world) fanout(args ...string) result {
	w.Helper()
	var out, errs bytes.Buffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&errs)
	cmd, err := root.ExecuteContextC(w.Context())
	if err != nil {
		errs.WriteString(err.Error())
	}
	return result{out.String(), errs.String(), exitCode(cmd, err)}
}

// want runs a command and compares its exit code and some of what it printed.
func (w *world) want(code int, text string, args ...string) result {
	w.Helper()
	r := w.fanout(args...)
	if r.code != code || !strings.Contains(r.out+r.err, text) {
		w.Errorf("fanout %v: code %d, want %d; want %q in\n%s%s", args, r.code, code, text, r.out, r.err)
	}
	return r
}

func TestCheckExitCodes(t *testing.T) {
	w := newWorld(t)
	w.want(0, "The books balance", "check")
	w.accept()
	w.want(1, "not everything is done", "check")
	w.want(1, "not published yet", "check", "--order", testOrder)
	entry := w.publish()
	for _, g := range groups {
		w.work(g)
		w.ack(g, entry)
	}
	w.want(0, "1 orders accepted", "check")
	w.want(0, "credited 25 points", "check", "--order", testOrder)
	w.exec(`update bonus_accounts set balance = 50`)
	w.want(2, "balance of customer c-42: 50, but should be 25", "check")
	w.want(3, "unknown flag", "check", "--what")
	w.want(3, "unknown command", "check", "what")
	w.want(3, "no such order", "check", "--order", "00000000-0000-7000-8000-000000000000")
	w.want(3, "no such order", "check", "--order", "") // a variable that is not set must not look like a balance
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	w.want(3, "connection refused", "check")
	t.Setenv("DATABASE_URL", "")
	w.want(3, "DATABASE_URL", "check")
	w.want(1, "unknown command", "what")
}

func TestCheckJSON(t *testing.T) {
	w := newWorld(t)
	w.accept()
	var r books.Report
	if err := json.Unmarshal([]byte(w.want(1, "", "check", "--json").out), &r); err != nil || r.Accepted != 1 || r.Result != books.Waiting || len(r.Groups) != 3 {
		t.Errorf("%v: %+v", err, r)
	}
	var p books.Passport
	if err := json.Unmarshal([]byte(w.want(1, "", "check", "--json", "--order", testOrder).out), &p); err != nil || p.EventID != testEvent || len(p.Groups) != 3 {
		t.Errorf("%v: %+v", err, p)
	}
}

// The books are read with the settings that the services have.
func TestCheckReadsSettings(t *testing.T) {
	w := newWorld(t)
	at := time.Now().UTC().Add(-6 * 24 * time.Hour)
	event := fmt.Sprintf("%08x-%04x-7d41-bde0-913dda1b84fa", at.UnixMilli()>>16, at.UnixMilli()&0xffff)
	w.exec(`insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
		values ($1, 'c-42', 'ada@example.com', 'EUR', 2500, 'placed', $3, $2)`, testOrder, event, at)
	w.exec(`insert into bonus_ledger (event_id, order_id, customer_id, points) values ($1, $2, 'c-42', 25)`, event, testOrder)
	w.exec(`insert into bonus_accounts values ('c-42', 25)`)
	w.do("HSET analytics:{stats}:totals orders 1 revenue:EUR 2500")
	w.do(fmt.Sprintf("XADD orders %d x y", at.Add(-time.Hour).UnixMilli()))
	for _, g := range groups {
		w.do("XGROUP SETID orders " + g + " $")
	}
	commands := [][]string{{"check"}, {"check", "--order", testOrder}, {"follow", testOrder}}
	for _, command := range commands {
		w.want(2, "", command...)
	}
	t.Setenv("PROCESSED_RETENTION", "3d")
	for _, command := range commands {
		w.want(0, "unknown", command...)
	}
	t.Setenv("REPUBLISH_WINDOW", "no")
	w.want(3, "REPUBLISH_WINDOW", "check")
	t.Setenv("PROCESSED_RETENTION", "9")
	w.want(3, "PROCESSED_RETENTION", "check", "--order", testOrder)
	w.want(1, "PROCESSED_RETENTION", "follow", testOrder)
}

// While Redis is not where the relay left it, check waits, and what was published last is not lost.
func TestCheckWaitsForTheRelayToNotice(t *testing.T) {
	w := newWorld(t)
	w.accept()
	w.exec(`update outbox set published_at = now(), entry_id = '1-1'`)
	w.exec(`insert into outbox_relay (name, holder, expires_at, broker_server, broker_last) values ('outbox', 'one', 'epoch', 'before', '1-1')`)
	r := w.want(1, "waiting in the outbox", "check", "--wait", "1s")
	if !strings.Contains(r.err, "not settled after 1s") || !strings.Contains(r.err, "Redis is not where the relay left it") ||
		!strings.Contains(r.out, "Redis is not where the relay left it") {
		t.Errorf("it does not say why: %s%s", r.err, r.out)
	}
	w.want(1, "Redis is not where the relay left it", "check", "--order", testOrder)
	w.exec(`update outbox set published_at = now() - interval '20 seconds'`)
	w.exec(`insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data, published_at)
		values ('later', '/orders', 'order.placed.v1', now(), 'x', 'c-42', 'application/json', '', '', '{}', now())`)
	w.want(2, "LOST", "check")
	w.exec(`delete from outbox; delete from order_items; delete from orders`)
	w.want(0, "The books balance", "check")
	w.want(1, "not settled after 1s", "check", "--wait", "1s")
	w.accept()
	w.exec(`update outbox set published_at = now() - interval '20 seconds', entry_id = '1-1'`)
	t.Setenv("REPUBLISH_WINDOW", "1m")
	w.want(1, "waiting in the outbox", "check")
}

// While it waits, the rest is done.
func TestCheckWaits(t *testing.T) {
	w := newWorld(t)
	w.accept()
	entry := w.publish()
	r := w.want(1, "not settled after 1s", "check", "--wait", "1s")
	if n := strings.Count(r.err, "waiting: outbox 0; mailer: 1 unread, 0 pending"); n != 1 {
		t.Errorf("progress was shown %d times, want once: %s", n, r.err)
	}
	_, see, ended := w.begin("check", "--wait", "30s")
	see("waiting: outbox 0; mailer: 1 unread, 0 pending")
	for _, g := range groups {
		w.work(g)
		w.ack(g, entry)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	see("The books balance")
}
