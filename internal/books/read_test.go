package books_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/internal/books"
)

func TestBalanced(t *testing.T) {
	w := newWorld(t)
	w.want(books.Balanced, nil) // nothing is balanced too
	w.done(3)
	r := w.want(books.Balanced, nil)
	if r.Accepted != 3 || r.Groups[0].Done != 3 || r.Groups[1].Done != 3 || r.Groups[2].Done != 3 {
		t.Errorf("not all is done: %s", show(r))
	}
}

// An order in each place that it can wait in, or be dead.
func TestWaiting(t *testing.T) {
	w := newWorld(t)
	w.done(2)
	w.accept(100)
	w.want(books.Waiting, map[string]int64{"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1})
	p := w.accept(200)
	w.publish(&p)
	w.want(books.Waiting, map[string]int64{
		"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1, "mailer unread": 1, "bonus unread": 1, "analytics unread": 1})
	w.take("bonus")
	w.do("HSET", "{orders}:fail:bonus", p.entry, "2:1764450000000")
	r := w.want(books.Waiting, map[string]int64{
		"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1, "mailer unread": 1, "bonus pending": 1, "analytics unread": 1})
	oldest := r.Groups[1].Oldest
	if len(oldest) != 1 || oldest[0].EntryID != p.entry || oldest[0].EventID != p.event || oldest[0].Owner != "bonus-1" ||
		oldest[0].Failures != 2 || oldest[0].NextTry == nil || oldest[0].Deliveries != 1 {
		t.Errorf("oldest pending %+v", oldest)
	}
	w.do("XADD", "{orders}:dead:bonus", "*", "id", p.event, "dead_reason", "permanent")
	w.ack("bonus", p.entry)
	w.want(books.Waiting, map[string]int64{
		"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1, "mailer unread": 1, "bonus dead": 1, "analytics unread": 1})
}

// A dead letter of nobody's order is no order's fault, and one of an order that is done does not undo it.
func TestForeignDeadLetters(t *testing.T) {
	w := newWorld(t)
	ps := w.done(1)
	w.do("XADD", "{orders}:dead:mailer", "*", "x", "y", "dead_reason", "malformed")
	w.do("XADD", "{orders}:dead:bonus", "*", "id", "nobody", "dead_reason", "permanent")
	w.do("XADD", "{orders}:dead:analytics", "*", "id", ps[0].event, "dead_reason", "permanent")
	w.want(books.Balanced, map[string]int64{"mailer foreign": 1, "bonus foreign": 1})
}

// A row that the broker refuses while others pass.
func TestOvertaken(t *testing.T) {
	w := newWorld(t)
	w.accept(100)
	w.exec(`update outbox set created_at = created_at - interval '2 minutes'`)
	w.done(1)
	r := w.want(books.Waiting, map[string]int64{"mailer outbox": 1, "bonus outbox": 1, "analytics outbox": 1})
	if r.Outbox.Unpublished != 1 || r.Outbox.Overtaken != 1 || r.Outbox.OldestSeconds < 120 {
		t.Errorf("outbox %+v", r.Outbox)
	}
}

// A row in the outbox keeps the books from being balanced, also where it is no order's.
func TestRowThatIsNoOrder(t *testing.T) {
	w := newWorld(t)
	w.accept(100)
	w.exec(`delete from orders`)
	w.want(books.Waiting, nil)
}

// Redis was set back: the stream's last id is below what the outbox has. The mailer's books are as old.
func TestRedisWasSetBack(t *testing.T) {
	w := newWorld(t)
	p := w.done(1)[0]
	w.do("DEL", "mailer:sent:"+p.event)
	w.do("DEL", "orders")
	w.do("XADD", "orders", "1-1", "x", "y")
	for _, g := range books.Groups {
		w.do("XGROUP", "CREATE", "orders", g, "$")
	}
	w.want(books.Balanced, map[string]int64{"mailer unknown": 1})
}

// An entry that was deleted before it was done is lost for those who had not done it, in whatever state it was.
func TestLost(t *testing.T) {
	for name, spoil := range map[string]func(w *world, p placed){
		"unread": func(w *world, p placed) { w.do("XDEL", "orders", p.entry) },
		"pending": func(w *world, p placed) {
			w.take("mailer")
			w.take("bonus")
			w.take("analytics")
			w.do("XDEL", "orders", p.entry)
		},
		"acknowledged without work": func(w *world, p placed) {
			for _, g := range books.Groups {
				w.take(g)
				w.ack(g, p.entry)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.done(2)
			p := w.accept(999)
			w.publish(&p)
			spoil(w, p)
			r := w.want(books.Wrong, map[string]int64{"mailer lost": 1, "bonus lost": 1, "analytics lost": 1})
			for _, g := range r.Groups {
				if !hasItem(g.LostIDs, p) {
					t.Errorf("%s does not name the order: %s", g.Name, show(r))
				}
			}
		})
	}
}

// Lost for one group only; the outbox row is gone too, as after OUTBOX_RETENTION.
func TestLostForOneGroup(t *testing.T) {
	w := newWorld(t)
	p := w.accept(999)
	w.publish(&p)
	w.finish("mailer", p)
	w.finish("analytics", p)
	w.take("bonus")
	w.ack("bonus", p.entry)
	w.exec(`delete from outbox`)
	w.want(books.Wrong, map[string]int64{"bonus lost": 1})
}

// The outbox row is deleted before it is published.
func TestLostInTheOutbox(t *testing.T) {
	w := newWorld(t)
	w.done(1)
	w.accept(100)
	w.exec(`delete from outbox where published_at is null`)
	// The mailer's one book begins with the stream's first entry, which is younger than a minute.
	w.want(books.Wrong, map[string]int64{"mailer unknown": 1, "bonus lost": 1, "analytics lost": 1})
}

// The same, where the stream goes back far enough to say that the mailer never had it.
func TestLostForTheMailerAsFarAsTheStreamGoesBack(t *testing.T) {
	w := newWorld(t)
	w.do("XADD", "orders", time.Now().Add(-time.Hour).UnixMilli(), "x", "y")
	for _, g := range books.Groups {
		w.take(g)
		w.do("XGROUP", "SETID", "orders", g, "$")
		w.do("XGROUP", "DELCONSUMER", "orders", g, g+"-1")
	}
	w.accept(100)
	w.exec(`delete from outbox`)
	w.want(books.Wrong, map[string]int64{"mailer lost": 1, "bonus lost": 1, "analytics lost": 1})
}

// After Redis lost all it had, the mailer's past is unknown, analytics' is lost, and bonus knows all.
func TestRedisLostEverything(t *testing.T) {
	w := newWorld(t)
	w.done(3)
	w.do("FLUSHALL")
	w.want(books.Wrong, map[string]int64{"mailer unknown": 3, "analytics lost": 3})
	for _, g := range books.Groups {
		w.do("XGROUP", "CREATE", "orders", g, "0", "MKSTREAM")
	}
	w.done(1)
	w.want(books.Wrong, map[string]int64{"mailer unknown": 3, "analytics lost": 3})
}

// A marker that ended with its time makes nothing lost; analytics' day has its sums.
func TestMarkersThatEnded(t *testing.T) {
	w := newWorld(t)
	w.done(1)
	for range 2 {
		p := w.acceptAt(5000, time.Now().Add(-20*24*time.Hour))
		p.entry = w.xadd(p)
		for _, g := range books.Groups {
			w.finish(g, p)
		}
		w.do("DEL", "mailer:sent:"+p.event)
		w.do("XTRIM", "orders", "MAXLEN", 0)
		w.exec(`delete from outbox where event_id = $1`, p.event)
	}
	day := time.Now().UTC().Add(-20 * 24 * time.Hour).Format(time.DateOnly)
	w.want(books.Balanced, map[string]int64{"mailer unknown": 2})
	w.do("HINCRBY", "analytics:{stats}:day:"+day, "orders", -1)
	w.do("HINCRBY", "analytics:{stats}:totals", "orders", -1)
	w.do("HINCRBY", "analytics:{stats}:day:"+day, "revenue:EUR", -5000)
	w.do("HINCRBY", "analytics:{stats}:totals", "revenue:EUR", -5000)
	w.want(books.Wrong, map[string]int64{"mailer unknown": 2, "analytics lost": 1, "analytics differences": 2})
	// Without the day itself the totals tell the same.
	w.do("ZREM", "analytics:{stats}:days", day)
	w.do("DEL", "analytics:{stats}:day:"+day)
	r := w.want(books.Wrong, map[string]int64{"mailer unknown": 2, "analytics lost": 1, "analytics differences": 2})
	if notes := strings.Join(r.Groups[2].Notes, " "); !strings.Contains(notes, "2 orders are of days that analytics keeps no more") {
		t.Errorf("notes: %s", notes)
	}
}

// A repeat is a second entry that a group acknowledged; one for another group is none, nor is one that waits.
func TestRepeats(t *testing.T) {
	w := newWorld(t)
	p := w.done(2)[0]
	again := w.xadd(p)
	only := w.xadd(p, "onlygroup", "bonus")
	for _, g := range []string{"mailer", "bonus"} {
		w.take(g)
		w.ack(g, again, only)
	}
	r := w.want(books.Waiting, map[string]int64{"mailer repeats": 1, "bonus repeats": 2})
	if n := r.Groups[2].Waiting.UnreadEntries; n != 2 {
		t.Errorf("analytics has %d entries unread, want 2", n)
	}
}

// A republish for one group makes nothing wait for the others.
func TestOnlyGroup(t *testing.T) {
	w := newWorld(t)
	p := w.accept(700)
	w.publish(&p)
	w.finish("mailer", p)
	w.finish("bonus", p)
	w.take("analytics")
	w.do("XADD", "{orders}:dead:analytics", "*", "id", p.event)
	w.ack("analytics", p.entry)
	w.want(books.Waiting, map[string]int64{"analytics dead": 1})
	w.do("XTRIM", "{orders}:dead:analytics", "MAXLEN", 0)
	w.want(books.Wrong, map[string]int64{"analytics lost": 1}) // thrown away is lost
	w.xadd(p, "onlygroup", "analytics")
	r := w.want(books.Waiting, map[string]int64{"analytics unread": 1})
	if n := r.Groups[0].Waiting.UnreadEntries; n != 1 {
		t.Errorf("the mailer has %d entries unread, want the one that it passes over", n)
	}
}

// A group that is not there has everything unread.
func TestMissingGroup(t *testing.T) {
	w := newWorld(t)
	p := w.done(1)[0]
	q := w.accept(100)
	w.publish(&q)
	w.finish("mailer", q)
	w.finish("analytics", q)
	w.do("XGROUP", "DESTROY", "orders", "bonus")
	r := w.want(books.Waiting, map[string]int64{"bonus unread": 1})
	if !r.Groups[1].Missing || r.Groups[1].Waiting.UnreadEntries != 2 || len(r.Groups[1].Notes) == 0 {
		t.Errorf("%v: %s", p, show(r))
	}
}

// A mail that was begun, and whose entry is nowhere.
func TestMailInDoubt(t *testing.T) {
	w := newWorld(t)
	p := w.accept(100)
	w.publish(&p)
	w.finish("bonus", p)
	w.finish("analytics", p)
	w.take("mailer")
	w.do("SET", "mailer:sent:"+p.event, "sending "+p.entry, "EX", 60)
	w.want(books.Waiting, map[string]int64{"mailer pending": 1})
	w.ack("mailer", p.entry)
	r := w.want(books.Waiting, map[string]int64{"mailer doubt": 1})
	if !hasItem(r.Groups[0].InDoubtSample, p) {
		t.Error(show(r))
	}
}

// The names that are copied from the services are theirs.
func TestNamesAreTheServices(t *testing.T) {
	t.Parallel()
	for file, names := range map[string][]string{
		"../../services/mailer/keys.go":    {`"mailer:sent:"`},
		"../../services/analytics/keys.go": {`"analytics:{stats}:"`, `prefix + "totals"`, `prefix + "days"`, `prefix + "day:"`, `prefix + "counted:"`, `"revenue:"`},
		"../../services/bonus/credit.go":   {`pointWorth = 100`},
		"../../broker/redisstream/keys.go": {`"{" + stream + "}:fail:" + group`},
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.Contains(string(b), name) {
				t.Errorf("%s has no %s any more: mend keys.go and this test", file, name)
			}
		}
	}
}
