package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var maxlen = lab{
	name:  "maxlen",
	about: "a stream grows for ever; MAXLEN caps it, and cuts off what a group that is behind has not read",
	run:   runMaxlen,
	roles: map[string]func(context.Context, *worker){"keeps-up": keepsUp, "falls-behind": fallsBehind},
}

const (
	added     = 5000 // entries
	longest   = 1000 // the cap
	readFirst = 100  // entries that the slow group has read before it stops
)

// payload makes an entry as large as a small order.
var payload = strings.Repeat("x", 200)

func runMaxlen(ctx context.Context, s *session) {
	s.step(ctx, "By hand: a cap, and a group that was not asked")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, "slow", 0, "MKSTREAM")
	for order := 1; order <= 4; order++ {
		s.do(ctx, "XADD", eventsKey, "MAXLEN", "=", 2, "*", "order", order)
	}
	s.note("The group has read nothing yet. What is there for it?")
	s.do(ctx, "XREADGROUP", "GROUP", "slow", "w1", "STREAMS", eventsKey, ">")
	s.note("Orders 3 and 4. Orders 1 and 2 are gone: no error, no log line, nothing pending.")

	var table [][]any
	for _, part := range []struct {
		how, title string
		cap        []any // what XADD gets
		trim       bool  // by what all groups have acknowledged
	}{
		{"no cap", "5,000 entries; group fast keeps up, group slow is killed after 100 entries; no cap", nil, false},
		{"MAXLEN = 1000", "The same with XADD … MAXLEN = 1000", []any{"MAXLEN", "=", longest}, false},
		{"MAXLEN ~ 1000", "The same with XADD … MAXLEN ~ 1000: at least 1,000, and whole blocks only", []any{"MAXLEN", "~", longest}, false},
		{"XTRIM by groups", "No cap, but after each 100 entries XTRIM up to what both groups have acknowledged", nil, true},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		for _, name := range []string{"fast", "slow"} {
			s.do(ctx, "XGROUP", "CREATE", eventsKey, name, 0, "MKSTREAM")
		}
		fast := &fleet{s: s, role: "maxlen/keeps-up", args: []string{"group=fast", "drain"}}
		slow := &fleet{s: s, role: "maxlen/falls-behind"}
		defer fast.stop()
		defer slow.stop()
		fast.start(ctx, 1, 0)
		slow.start(ctx, 1, 0)

		cost := xaddCost(ctx, s)
		for n := 0; n < added; n += 100 {
			add100(ctx, s, part.cap, n)
			if n == 0 {
				s.until(ctx, "slow has read 100", func() bool { return settled(ctx, s, "slow") == readFirst })
				slow.kill(slow.members[0])
			}
			s.until(ctx, "fast has read all", func() bool { return settled(ctx, s, "fast") == n+100 })
			if part.trim {
				trimAcknowledged(ctx, s)
			}
		}
		each := xaddCost(ctx, s).less(cost)
		length, before := s.count(ctx, "XLEN", eventsKey), s.count(ctx, "MEMORY", "USAGE", eventsKey, "SAMPLES", 0)

		s.note("slow is started again and reads to the end:")
		slow = &fleet{s: s, role: "maxlen/keeps-up", args: []string{"group=slow", "drain"}}
		defer slow.stop()
		slow.start(ctx, 1, 0)
		s.until(ctx, "slow is at the end", func() bool {
			info := groupInfo(ctx, s, "slow")
			return info.LastDeliveredID == lastID(ctx, s) && info.Pending == 0
		})
		slow.term()
		fast.term()
		if part.trim {
			trimAcknowledged(ctx, s)
		}
		after := s.ask(ctx, "MEMORY", "USAGE", eventsKey, "SAMPLES", 0)
		table = append(table, []any{part.how, added, each, length, before / 1024, after / 1024, added - s.count(ctx, "HLEN", doneKey)})
	}
	s.table([]string{"what", "added", "µs for an XADD", "length with slow down", "KiB", "KiB once slow is back", "gone unread"}, table...)
	s.conclude("a cap forgets whoever is behind, just when it matters; trim what every group has acknowledged, and alarm on the group that holds it up.")
}

// add100 adds a hundred entries in one pipeline, the first of all by hand.
func add100(ctx context.Context, s *session, cap []any, n int) {
	pipe := s.redis.Pipeline()
	for order := n + 1; order <= n+100; order++ {
		args := append([]any{"XADD", eventsKey}, cap...)
		args = append(args, "*", "order", order, "data", payload)
		if order == 1 {
			s.do(ctx, args...)
			continue
		}
		pipe.Do(ctx, args...)
	}
	must(pipe.Exec(ctx))
}

// fallsBehind reads the first entries of its group, and then hangs, until it is killed.
func fallsBehind(ctx context.Context, w *worker) {
	for read := 0; read < readFirst; {
		entries := w.readGroup(ctx, "slow", ">")
		read += len(entries)
		for _, e := range entries {
			w.done(ctx, e.Values["order"])
			check(w.redis.XAck(ctx, eventsKey, "slow", e.ID).Err())
		}
	}
	select {}
}

// keepsUp reads its group. Only for slow it matters what was done.
func keepsUp(ctx context.Context, w *worker) {
	group := w.args["group"]
	for !w.stopping() {
		for _, e := range w.readGroup(ctx, group, ">") {
			if group == "slow" {
				w.done(ctx, e.Values["order"])
			}
			check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
		}
	}
}

// trimAcknowledged removes what every group has acknowledged, and nothing else: all before the smallest of each group's oldest pending
// entry or, where nothing is pending, the one after the last that it was given. Positions only go up, so what was read here a moment ago is safe.
func trimAcknowledged(ctx context.Context, s *session) {
	first := ""
	for _, g := range must(s.redis.XInfoGroups(ctx, eventsKey).Result()) {
		needs := after(g.LastDeliveredID)
		if g.Pending > 0 {
			needs = must(s.redis.XPending(ctx, eventsKey, g.Name).Result()).Lower
		}
		if first == "" || lessID(needs, first) {
			first = needs
		}
	}
	check(s.redis.XTrimMinID(ctx, eventsKey, first).Err())
}

// after is the smallest id behind one.
func after(id string) string {
	ms, seq := splitID(id)
	return fmt.Sprintf("%d-%d", ms, seq+1)
}

func lessID(a, b string) bool {
	ams, aseq := splitID(a)
	bms, bseq := splitID(b)
	return ams < bms || ams == bms && aseq < bseq
}

func lastID(ctx context.Context, s *session) string {
	return must(s.redis.XInfoStream(ctx, eventsKey).Result()).LastGeneratedID
}

// cost is what the server says that its XADDs have taken so far.
type cost struct{ calls, usec int }

var xaddStat = regexp.MustCompile(`cmdstat_xadd:calls=(\d+),usec=(\d+)`)

func xaddCost(ctx context.Context, s *session) cost {
	m := xaddStat.FindStringSubmatch(must(s.redis.Info(ctx, "commandstats").Result()))
	if m == nil {
		return cost{}
	}
	return cost{must(strconv.Atoi(m[1])), must(strconv.Atoi(m[2]))}
}

// less is the time of one of the calls between two moments.
func (c cost) less(before cost) string {
	return fmt.Sprintf("%.2f", float64(c.usec-before.usec)/float64(max(c.calls-before.calls, 1)))
}
