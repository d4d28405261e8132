package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// letter adds a dead letter of the test's event and returns its id.
func (w *world) letter(group string) string {
	w.Helper()
	return w.do("XADD {orders}:dead:" + group + " * id " + testEvent + " type order.placed.v1 subject " + testOrder +
		" dead_reason permanent dead_error broken dead_attempts 1 dead_entry_id 1-1 dead_consumer one dead_at 2026-11-29T12:00:00Z")
}

func (w *world) length(key string) int64 {
	w.Helper()
	return w.redis.XLen(context.Background(), key).Val()
}

func TestDead(t *testing.T) {
	w := newWorld(t)
	w.want(0, "bonus has no dead letters", "dead", "list", "-g", "bonus")
	first, second, third := w.letter("bonus"), w.letter("bonus"), w.letter("bonus")
	w.want(0, third, "dead", "list", "--group", "bonus")
	w.want(0, "broken", "dead", "show", first, "--group", "bonus")
	w.want(0, `"reason": "permanent"`, "dead", "show", first, "--group", "bonus", "--json")
	w.want(1, "name a group", "dead", "list")
	w.want(1, `no group "sms"`, "dead", "list", "--group", "sms")
	w.want(1, "--id", "dead", "redrive", "--group", "bonus")
	w.want(1, "either --id or --all", "dead", "redrive", "--group", "bonus", "--all", "--id", first)
	w.want(0, "redrive", "dead")
	w.want(1, "there is no fanout dead redrve", "dead", "redrve", "--all", "-y", "-g", "bonus")
	w.want(1, "which one?", "dead", "show", "--group", "bonus")
	w.want(1, "too much", "dead", "show", first, second, "--group", "bonus")
	w.want(1, "an id is like", "dead", "redrive", "--group", "bonus", "--id", "x", "--yes")
	w.want(1, "which order?", "follow")

	// Nothing happens unasked: neither in a dry run nor without an answer.
	for _, act := range []string{"redrive", "discard"} {
		w.want(0, "would be", "dead", act, "--group", "bonus", "--all", "--dry-run")
		w.want(0, `"done": false`, "dead", act, "--group", "bonus", "--all", "--dry-run", "--json")
		w.want(1, "3 dead letters? [y/N] ", "dead", act, "--group", "bonus", "--all")
	}
	if n := w.length("{orders}:dead:bonus"); n != 3 || w.length("orders") != 0 {
		t.Fatalf("%d dead letters are left, want 3; %d entries were added", n, w.length("orders"))
	}
	w.want(0, first+" redriven as entry ", "dead", "redrive", "--group", "bonus", "--id", first, "--yes")
	w.want(1, "no such dead letter", "dead", "redrive", "--group", "bonus", "--id", first, "--yes")
	w.want(0, second+" discarded", "dead", "discard", "--group", "bonus", "--id", second, "--yes")
	var done []deadResult
	r := w.want(0, "", "dead", "redrive", "--group", "bonus", "--all", "--yes", "--json")
	if err := json.Unmarshal([]byte(r.out), &done); err != nil || len(done) != 1 || done[0].ID != third || !done[0].Done || done[0].EntryID == "" {
		t.Errorf("%v: %+v", err, done)
	}
	w.want(0, "bonus has no dead letters", "dead", "redrive", "--group", "bonus", "--all", "--yes")
	if n := w.length("{orders}:dead:bonus"); n != 0 || w.length("orders") != 2 {
		t.Errorf("%d dead letters, %d entries; want 0 and 2", n, w.length("orders"))
	}
}

func TestRepublishOneOrder(t *testing.T) {
	w := newWorld(t)
	w.want(1, "--order", "republish")
	w.want(1, "--order", "republish", "--since", "1h", "--order", testOrder)
	w.want(1, "no row in the outbox", "republish", "--order", testOrder)
	w.accept()
	w.want(1, "not published yet", "republish", "--order", testOrder)
	w.publish()
	w.want(0, "1 event of order", "republish", "--order", testOrder, "--dry-run")
	if r := w.want(0, `"events": 1,`, "republish", "--order", testOrder, "--dry-run", "--json"); !json.Valid([]byte(r.out)) {
		t.Errorf("no JSON: %s", r.out)
	}
	w.want(1, "nothing was done", "republish", "--order", testOrder)
	if n := w.length("orders"); n != 1 {
		t.Fatalf("%d entries, want the first only", n)
	}
	w.want(0, "1 of 1", "republish", "--order", testOrder, "--group", "mailer", "--yes")
	last := w.redis.XRevRangeN(context.Background(), "orders", "+", "-", 1).Val()[0].Values
	if w.length("orders") != 2 || last["id"] != testEvent || last["onlygroup"] != "mailer" || last["data"] != "{}" {
		t.Errorf("%d entries, the last %v", w.length("orders"), last)
	}
	w.want(0, "1 of 1", "republish", "--since", "1h", "--yes")
	if n := w.length("orders"); n != 4 { // bonus and analytics
		t.Errorf("%d entries, want 4", n)
	}
}

// A variable that is not set makes --group empty: that is no group, and not all of them.
func TestNoGroupIsAnError(t *testing.T) {
	w := newWorld(t)
	w.accept()
	w.publish()
	for _, command := range [][]string{
		{"republish", "--since", "1h", "--yes", "--group", ""},
		{"republish", "--since", "1h", "--yes", "--group="},
		{"republish", "--since", "1h", "--yes", "--group", "", "--group", "bonus"},
		{"republish", "--since", "1h", "--yes", "--group", "bonus,"},
		{"republish", "--order", testOrder, "--yes", "--group", ""},
		{"dead", "list", "--group", ""},
		{"dead", "show", "1-1", "--group", ""},
		{"dead", "redrive", "--all", "--yes", "--group", ""},
		{"dead", "discard", "--all", "--yes", "--group", ""},
	} {
		w.want(1, "name a group with --group: mailer, bonus, analytics", command...)
	}
	w.want(1, `no group "sms"`, "republish", "--since", "1h", "--yes", "--group", "bonus,sms")
	if n := w.length("orders"); n != 1 {
		t.Errorf("%d entries, want the first only", n)
	}
	w.want(0, "for [bonus mailer]", "republish", "--since", "1h", "--yes", "--group", "bonus,mailer", "--group", "bonus")
	if n := w.length("orders"); n != 3 {
		t.Errorf("%d entries, want one more for each of two groups", n)
	}
}

// An event that is meant for one group is published again for that one only.
func TestRepublishKeepsOnlyGroup(t *testing.T) {
	w := newWorld(t)
	w.accept()
	w.exec(`insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, only_group, data)
		values ('for-bonus', '/orders', 'order.placed.v1', now(), 'x', 'c-42', 'application/json', '', '', 'bonus', '{}')`)
	w.publish()
	w.want(0, "1 events since", "republish", "--since", "1h", "--group", "analytics", "--dry-run")
	w.want(0, "1 more are for another group only", "republish", "--since", "1h", "--group", "analytics", "--dry-run")
	w.want(0, "2 of 2", "republish", "--since", "1h", "--group", "analytics,bonus", "--yes")
	var got []string
	for _, e := range w.redis.XRange(t.Context(), "orders", "-", "+").Val()[1:] {
		got = append(got, fmt.Sprint(e.Values["id"], " for ", e.Values["onlygroup"]))
	}
	want := []string{testEvent + " for analytics", testEvent + " for bonus", "for-bonus for bonus"}
	if !slices.Equal(got, want) {
		t.Errorf("published again: %q, want %q", got, want)
	}
	w.exec(`update outbox set only_group = 'bonus'`)
	w.want(1, "for bonus only", "republish", "--order", testOrder, "--group", "mailer", "--yes")
	if n := w.length("orders"); n != 4 {
		t.Errorf("%d entries, want no more than 4", n)
	}
	w.want(0, "1 of 1", "republish", "--order", testOrder, "--yes")
	if n := w.length("orders"); n != 5 {
		t.Errorf("%d entries, want one more: for bonus", n)
	}
}

// TestLagThatLies: Redis's own count of unread entries is wrong.
func TestLagThatLies(t *testing.T) {
	w := newWorld(t)
	w.do("XADD orders * id e type t")
	for _, g := range groups {
		w.do("XREADGROUP GROUP " + g + " one STREAMS orders >")
		w.do("XGROUP SETID orders " + g + " " + w.redis.XRange(t.Context(), "orders", "-", "+").Val()[0].ID + " ENTRIESREAD 0")
	}
	if r := w.want(0, "", "lag", "--json"); strings.Contains(r.out, `"unread": 1`) || !strings.Contains(r.out, `"unread": 0`) {
		t.Errorf("it tells of unread entries where there are none: %s", r.out)
	}
}

func TestTrim(t *testing.T) {
	w := newWorld(t)
	old := time.Now().Add(-48 * time.Hour).UTC().Format(time.RFC3339)
	for i := range 5 {
		w.do(fmt.Sprintf("XADD orders * id e-%d type t time %s", i, old))
	}
	w.want(0, "blocked by analytics, bonus, mailer: ", "trim", "--dry-run")
	for _, g := range groups {
		w.do("XREADGROUP GROUP " + g + " one STREAMS orders >")
		for _, e := range w.redis.XRange(t.Context(), "orders", "-", "+").Val()[:3] {
			w.ack(g, e.ID)
		}
	}
	for _, p := range w.redis.XRange(t.Context(), "orders", "-", "+").Val()[3:] {
		w.ack("mailer", p.ID)
		w.ack("analytics", p.ID)
	}
	w.do("XGROUP CREATE orders sms 0")
	r := w.want(0, "3 entries would be removed, 2 are left", "trim", "--dry-run")
	if !strings.Contains(r.out, "blocked by bonus: ") || !strings.Contains(r.out, "nobody configured the group sms") {
		t.Errorf("it does not say who blocks: %s", r.out)
	}
	w.want(0, "blocked by bonus: ", "lag")
	w.want(0, `"trim_blocked_by": [`, "lag", "--json")
	w.want(1, "Remove 3 of 5 entries?", "trim")
	if n := w.length("orders"); n != 5 {
		t.Fatalf("%d entries are left without a yes, want 5", n)
	}
	var got trimResult
	if err := json.Unmarshal([]byte(w.want(0, "", "trim", "--yes", "--json").out), &got); err != nil || got.Removed != 3 || got.Length != 2 || len(got.Blocked) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	if n := w.length("orders"); n != 2 {
		t.Errorf("%d entries are left, want 2", n)
	}
	t.Setenv("STREAM_MAX_LEN", "no")
	w.want(1, "STREAM_MAX_LEN", "trim")
}

func TestCompletion(t *testing.T) {
	w := &world{T: t}
	w.want(0, "bash completion", "completion", "bash")
	for _, command := range [][]string{{"dead", "list"}, {"dead", "redrive"}, {"republish"}} {
		args := append(append([]string{"__complete"}, command...), "--group", "")
		w.want(0, "mailer\nbonus\nanalytics\n", args...)
	}
}

// lineBuffer is what a command printed so far.
type lineBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lineBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lineBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// begin runs a command beside the test: see waits until it has printed a text, ended gets its error.
func (w *world) begin(args ...string) (out *lineBuffer, see func(text string), ended <-chan error) {
	w.Helper()
	out = &lineBuffer{}
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	end := make(chan error, 1)
	go func() { end <- root.ExecuteContext(w.Context()) }()
	see = func(text string) {
		w.Helper()
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				w.Fatalf("%q is not in\n%s", text, out)
			}
		}
	}
	return out, see, end
}

// One order on its whole way, with a lost worker, a failure, a dead letter and a repeat.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	w.want(1, "no such order", "follow", testOrder)
	w.accept()
	out, see, ended := w.begin("follow", testOrder)
	see("accepted: 2500 EUR of customer c-42")
	entry := w.publish()
	see("published as entry " + entry)
	w.do("XREADGROUP GROUP bonus one STREAMS orders >")
	see("bonus: read by one (entry " + entry + ", delivery 1)")
	w.do("XCLAIM orders bonus two 0 " + entry)
	see("bonus: one was lost, claimed by two (delivery 2)")
	w.do("HSET {orders}:fail:bonus " + entry + " 1:1795980291088")
	see("bonus: failed, 1 so far, next try at ")
	w.work("bonus")
	see("bonus: credited 25 points")
	w.ack("bonus", entry)
	w.work("mailer")
	see("mailer: mailed")
	w.ack("mailer", entry)
	again := w.do("XADD orders * id " + testEvent + " onlygroup mailer")
	see("added for mailer only, as entry " + again)
	for _, g := range []string{"mailer", "bonus"} {
		w.do("XREADGROUP GROUP " + g + " one STREAMS orders >")
		w.ack(g, again)
	}
	see("mailer: repeat absorbed (1 so far)")
	w.do("XREADGROUP GROUP analytics one STREAMS orders >")
	letter := w.letter("analytics")
	w.ack("analytics", entry)
	see("analytics: dead, permanent: broken (letter " + letter + ")")
	w.want(0, "redriven", "dead", "redrive", "--group", "analytics", "--id", letter, "--yes")
	see("analytics: its dead letter was redriven or thrown away")
	select {
	case err := <-ended:
		t.Fatalf("it ended too early: %v\n%s", err, out)
	default:
	}
	w.work("analytics")
	for _, g := range groups {
		w.do("XREADGROUP GROUP " + g + " one STREAMS orders >")
		for _, e := range w.redis.XRange(t.Context(), "orders", "-", "+").Val() {
			w.ack(g, e.ID)
		}
	}
	see("analytics: counted")
	if err := <-ended; err != nil {
		t.Errorf("follow: %v", err)
	}
}

// newLostOrder is a world with an order that bonus has acknowledged without doing it.
func newLostOrder(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.accept()
	entry := w.publish()
	for _, g := range []string{"mailer", "analytics"} {
		w.work(g)
		w.ack(g, entry)
	}
	w.do("XREADGROUP GROUP bonus one STREAMS orders >")
	w.ack("bonus", entry)
	return w
}

// An order that is lost for a group ends it, once that was seen for a while, as check would end.
func TestFollowALostOrder(t *testing.T) {
	w := newLostOrder(t)
	began := time.Now()
	r := w.want(2, "bonus: LOST", "follow", testOrder)
	if took := time.Since(began); took < lostFor {
		t.Errorf("it gave up after %s, want at least %s: the order might have come back", took, lostFor)
	}
	if !strings.Contains(r.out, "mailer: mailed") || strings.Contains(r.out, "mailer: LOST") {
		t.Errorf("it says of the others: %s", r.out)
	}
	w.want(0, "exit code 2", "follow", "--help")
}

// An order that is lost in some looks only is not.
func TestFollowAnOrderThatComesBack(t *testing.T) {
	w := newLostOrder(t)
	time.AfterFunc(lostFor/2, func() { w.work("bonus") })
	r := w.want(0, "bonus: credited 25 points", "follow", testOrder)
	if strings.Contains(r.out, "LOST") {
		t.Errorf("it was called lost: %s", r.out)
	}
}
