package books_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/internal/books"
)

func (w *world) passport(p placed) *books.Passport {
	w.Helper()
	got, err := w.cfg.ReadPassport(w.Context(), w.fanout.db, w.fanout.redis, p.id)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

// wantStates compares the states of mailer, bonus and analytics.
func (w *world) wantStates(p placed, verdict books.Verdict, states string) *books.Passport {
	w.Helper()
	got := w.passport(p)
	var all []string
	for _, s := range got.Groups {
		all = append(all, s.State)
	}
	if s := strings.Join(all, ", "); s != states || got.Verdict() != verdict {
		w.Errorf("%s: %s, want %s: %s", got.Verdict(), s, verdict, states)
	}
	return got
}

// One order on its whole way.
func TestPassport(t *testing.T) {
	w := newWorld(t)
	w.done(2)
	p := w.accept(1250)
	w.done(1)
	if got := w.wantStates(p, books.Waiting, "outbox, outbox, outbox"); got.Outbox == nil || got.Outbox.PublishedAt != nil || got.EventID != p.event {
		t.Errorf("%+v", got)
	}
	w.publish(&p)
	got := w.wantStates(p, books.Waiting, "unread, unread, unread")
	if got.Outbox.EntryID != p.entry || got.Outbox.PublishedAt == nil || len(got.Entries) != 1 || got.Entries[0].ID != p.entry {
		t.Errorf("%+v", got)
	}
	w.finish("mailer", p)
	w.take("bonus")
	w.do("HSET", "{orders}:fail:bonus", p.entry, "3:1764450000000")
	w.take("analytics")
	w.do("XADD", "{orders}:dead:analytics", "*", "id", p.event, "type", "order.placed.v1", "dead_reason", "permanent", "dead_error", "too late")
	w.ack("analytics", p.entry)
	got = w.wantStates(p, books.Waiting, "done, pending, dead")
	if e := got.Groups[1].Pending; e == nil || e.Owner != "bonus-1" || e.Failures != 3 {
		t.Errorf("pending: %+v", e)
	}
	if l := got.Groups[2].Dead; l == nil || l.Reason != "permanent" || l.Error != "too late" {
		t.Errorf("dead: %+v", l)
	}
	w.effect("bonus", p)
	if got = w.wantStates(p, books.Waiting, "done, done, dead"); got.Groups[1].Pending == nil || got.Groups[1].At == nil {
		t.Errorf("done, and not acknowledged: %+v", got.Groups[1])
	}
	w.ack("bonus", p.entry)
	w.do("XTRIM", "{orders}:dead:analytics", "MAXLEN", 0)
	w.wantStates(p, books.Wrong, "done, done, lost")
	again := w.xadd(p)
	w.wantStates(p, books.Waiting, "done, done, unread")
	for _, g := range []string{"mailer", "bonus"} {
		w.take(g)
		w.ack(g, again)
	}
	w.take("analytics")
	w.effect("analytics", p)
	w.ack("analytics", again)
	got = w.wantStates(p, books.Balanced, "done, done, done")
	if got.Groups[1].Effect != "credited 12 points" || got.Groups[1].Repeats != 1 {
		t.Errorf("bonus: %+v", got.Groups[1])
	}
	w.credit("other", p.id, 12)
	w.wantStates(p, books.Wrong, "done, done, done")
}

func TestPassportOfAnOldOrder(t *testing.T) {
	w := newWorld(t)
	p := w.acceptAt(100, time.Now().Add(-20*24*time.Hour))
	w.effect("bonus", p)
	w.exec(`delete from outbox`)
	w.wantStates(p, books.Balanced, "unknown, done, unknown")
}

func TestPassportOfNoOrder(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"x", "00000000-0000-7000-8000-000000000001"} {
		if _, err := (books.Config{}).ReadPassport(t.Context(), w.fanout.db, w.fanout.redis, id); !errors.Is(err, books.ErrNoOrder) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
