package books_test

import (
	"testing"

	"example.com/orderfanout/internal/books"
)

// What can be wrong in ledger and accounts, each alone.
func TestLedger(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, p placed)
		want  map[string]int64
	}{
		"credited twice": {
			func(w *world, p placed) { w.credit("another", p.id, p.total/100) },
			map[string]int64{"bonus twice": 1},
		},
		"marked and not credited, though it comes again": {
			func(w *world, p placed) {
				w.xadd(p)
				w.exec(`delete from bonus_ledger where event_id = $1`, p.event)
				w.exec(`update bonus_accounts set balance = balance - $1`, p.total/100)
			},
			map[string]int64{"bonus lost": 1},
		},
		"wrong points": {
			func(w *world, p placed) {
				w.exec(`update bonus_ledger set points = points + 1 where event_id = $1`, p.event)
				w.exec(`update bonus_accounts set balance = balance + 1`)
			},
			map[string]int64{"bonus differences": 1},
		},
		"another customer": {
			func(w *world, p placed) {
				w.exec(`update bonus_ledger set customer_id = 'd' where event_id = $1`, p.event)
				w.exec(`update bonus_accounts set balance = balance - $1`, p.total/100)
				w.exec(`insert into bonus_accounts values ('d', $1)`, p.total/100)
			},
			map[string]int64{"bonus differences": 1},
		},
		"balance too high": {
			func(w *world, p placed) { w.exec(`update bonus_accounts set balance = balance + 1`) },
			map[string]int64{"bonus differences": 1},
		},
		"account gone": {
			func(w *world, p placed) { w.exec(`delete from bonus_accounts`) },
			map[string]int64{"bonus differences": 1},
		},
		"account without a ledger": {
			func(w *world, p placed) { w.exec(`insert into bonus_accounts values ('d', 1)`) },
			map[string]int64{"bonus differences": 1},
		},
		"credit without an order": {
			func(w *world, p placed) { w.credit("stranger", "00000000-0000-7000-8000-000000000001", 5) },
			map[string]int64{"bonus without": 1},
		},
		"counted twice": {
			func(w *world, p placed) { w.count(p) },
			map[string]int64{"analytics twice": 1, "analytics differences": 2},
		},
		"marked and not counted": {
			func(w *world, p placed) {
				for _, key := range []string{"analytics:{stats}:totals", "analytics:{stats}:day:" + p.at.Format("2006-01-02")} {
					w.do("HINCRBY", key, "orders", -1)
					w.do("HINCRBY", key, "revenue:EUR", -p.total)
				}
			},
			map[string]int64{"analytics lost": 1, "analytics differences": 2},
		},
		"another revenue": {
			func(w *world, p placed) {
				w.do("HINCRBY", "analytics:{stats}:totals", "revenue:EUR", 1)
				w.do("HINCRBY", "analytics:{stats}:day:"+p.at.Format("2006-01-02"), "revenue:EUR", 1)
			},
			map[string]int64{"analytics differences": 1},
		},
		"totals that are not their days": {
			func(w *world, p placed) { w.do("HINCRBY", "analytics:{stats}:totals", "revenue:EUR", -1) },
			map[string]int64{"analytics differences": 1},
		},
		"counted without an order": {
			func(w *world, p placed) {
				stranger := p
				stranger.event = idAt(p.at)
				w.effect("analytics", stranger)
			},
			map[string]int64{"analytics without": 1, "analytics differences": 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.done(3)[1]
			w.want(books.Balanced, nil)
			c.spoil(w, p)
			w.want(books.Wrong, c.want)
		})
	}
}
