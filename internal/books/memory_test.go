package books_test

import (
	"testing"
	"time"

	"example.com/orderfanout/internal/books"
)

const days = 24 * time.Hour

// doneLongAgo is an order of that age which all groups did at once; what ends PROCESSED_RETENTION after that has ended.
func (w *world) doneLongAgo(age time.Duration) placed {
	w.Helper()
	at := time.Now().Add(-age)
	p := w.acceptAt(5000, at)
	p.entry = w.do("XADD", "orders", at.UnixMilli(), "id", p.event, "type", "order.placed.v1", "subject", p.id).(string)
	w.exec(`update outbox set published_at = $3, entry_id = $2 where event_id = $1`, p.event, p.entry, at)
	for _, g := range books.Groups {
		w.finish(g, p)
	}
	w.do("DEL", "mailer:sent:"+p.event, "analytics:{stats}:counted:"+p.at.Format(time.DateOnly))
	return p
}

// trim removes from stream and outbox what is old.
func (w *world) trim() {
	w.Helper()
	w.do("XTRIM", "orders", "MAXLEN", 0)
	w.exec(`delete from outbox`)
}

// keptFor has the marker set of the order's day end as PROCESSED_RETENTION says.
func (w *world) keptFor(p placed, retention time.Duration) {
	w.Helper()
	end := p.at.Truncate(days).Add(days + retention)
	w.do("EXPIREAT", "analytics:{stats}:counted:"+p.at.Format(time.DateOnly), end.Unix())
}

// An entry that was deleted by hand long ago lets the stream seem to go back for ever. It does not make the markers last.
func TestMarkersThatEndedAfterADeletionByHand(t *testing.T) {
	w := newWorld(t)
	id := w.do("XADD", "orders", time.Now().Add(-30*days).UnixMilli(), "x", "y").(string)
	for _, g := range books.Groups {
		w.take(g)
		w.ack(g, id)
	}
	w.do("XDEL", "orders", id)
	p := w.doneLongAgo(20 * days)
	w.trim()
	w.done(1)
	w.want(books.Balanced, map[string]int64{"mailer unknown": 1})
	w.wantStates(p, books.Balanced, "unknown, done, unknown")
}

// Nothing was trimmed for longer than a marker lasts: the system was off, or a group kept the stream from being trimmed.
func TestMarkersThatEndedBeforeTheirEntries(t *testing.T) {
	w := newWorld(t)
	p := w.doneLongAgo(11 * days)
	w.want(books.Balanced, map[string]int64{"mailer unknown": 1})
	w.wantStates(p, books.Balanced, "unknown, done, unknown")
}

// A marker that is gone before its time is no marker that ended.
func TestMarkersThatAreMissing(t *testing.T) {
	w := newWorld(t)
	p := w.doneLongAgo(8 * days)
	w.do("SADD", "analytics:{stats}:counted:"+p.at.Format(time.DateOnly), p.event)
	w.want(books.Wrong, map[string]int64{"mailer lost": 1})
	w.wantStates(p, books.Wrong, "lost, done, done")
}

// What waits or is dead after its markers' time is not unknown.
func TestOldOrdersThatWait(t *testing.T) {
	w := newWorld(t)
	at := time.Now().Add(-20 * days)
	p := w.acceptAt(5000, at)
	w.want(books.Waiting, map[string]int64{"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1})
	w.publish(&p)
	w.want(books.Waiting, map[string]int64{"mailer unread": 1, "bonus unread": 1, "analytics unread": 1})
	w.take("mailer")
	w.do("SET", "mailer:sent:"+p.event, "sending "+p.entry)
	w.ack("mailer", p.entry)
	w.want(books.Waiting, map[string]int64{"mailer doubt": 1, "bonus unread": 1, "analytics unread": 1})
}

// PROCESSED_RETENTION is less than its default. It is known from the configuration, from the marker sets, or from both; report and
// passport agree.
func TestShortRetention(t *testing.T) {
	for name, c := range map[string]struct {
		configured time.Duration
		sets       bool
	}{
		"configured":                 {3 * days, false},
		"told by a later marker set": {0, true},
		"both":                       {3 * days, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.ProcessedRetention = c.configured
			p := w.doneLongAgo(6 * days)
			w.trim()
			if c.sets {
				w.keptFor(w.done(1)[0], 3*days)
			}
			w.want(books.Balanced, map[string]int64{"mailer unknown": 1})
			w.wantStates(p, books.Balanced, "unknown, done, unknown")
		})
	}
}

// PROCESSED_RETENTION is more than its default.
func TestLongRetention(t *testing.T) {
	w := newWorld(t)
	w.cfg.ProcessedRetention = 30 * days
	p := w.doneLongAgo(20 * days)
	w.do("SADD", "analytics:{stats}:counted:"+p.at.Format(time.DateOnly), p.event)
	w.want(books.Wrong, map[string]int64{"mailer lost": 1})
	w.wantStates(p, books.Wrong, "lost, done, done")
	w.do("HINCRBY", "analytics:{stats}:totals", "orders", -1)
	w.do("HINCRBY", "analytics:{stats}:totals", "revenue:EUR", -5000)
	w.do("DEL", "analytics:{stats}:days", "analytics:{stats}:counted:"+p.at.Format(time.DateOnly))
	w.want(books.Wrong, map[string]int64{"mailer lost": 1, "analytics lost": 1})
	w.wantStates(p, books.Wrong, "lost, done, lost")
}
