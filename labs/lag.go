package main

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

var lag = lab{
	name:  "lag",
	about: "what XINFO and XPENDING say while a consumer is idle, behind, dead and back; and when lag is nil",
	run:   runLag,
	roles: map[string]func(context.Context, *worker){"works": lagWorks, "hangs": lagHangs},
}

func runLag(ctx context.Context, s *session) {
	var table [][]any
	note := func(state string) {
		s.do(ctx, "XINFO", "GROUPS", eventsKey)
		info := groupInfo(ctx, s, group)
		unread := any(int(info.Lag))
		if info.Lag < 0 { // so the client library reads nil
			unread = "nil"
		}
		length, idle, connected := s.ask(ctx, "XLEN", eventsKey), any("-"), "no"
		for _, c := range must(s.redis.XInfoConsumers(ctx, eventsKey, group).Result()) {
			idle = int(c.Idle.Milliseconds())
		}
		if w1Connected(ctx, s) {
			connected = "yes"
		}
		table = append(table, []any{state, length, int(info.EntriesRead), unread, int(info.Pending), idle, connected})
	}
	start := func(role string) *fleet {
		f := &fleet{s: s, role: "lag/" + role, args: []string{"drain"}}
		f.start(ctx, 1, 0)
		return f
	}

	s.step(ctx, "Nobody reads yet: 10 entries, and a group")
	addEntries(ctx, s, "job", 1, 10)
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	note("nobody reads")

	s.step(ctx, "Idle: w1 has done all and waits for more")
	w1 := start("works")
	defer func() { w1.stop() }()
	s.until(ctx, "w1 has done all", func() bool { return settled(ctx, s, group) == 10 })
	note("idle")
	w1.term()

	s.step(ctx, "Behind: w1 hangs in its first entry of ten, and 40 more wait")
	w1 = start("hangs")
	addEntries(ctx, s, "job", 11, 20)
	s.until(ctx, "w1 has them", func() bool { return groupInfo(ctx, s, group).Pending == 10 })
	addEntries(ctx, s, "job", 21, 60)
	note("behind")
	s.do(ctx, "XINFO", "CONSUMERS", eventsKey, group)

	s.step(ctx, "Dead: w1 is killed (kill -9)")
	w1.kill(w1.members[0])
	s.until(ctx, "its connection is gone", func() bool { return !w1Connected(ctx, s) })
	note("dead")
	s.do(ctx, "XPENDING", eventsKey, group)
	s.note("The same figures as a moment ago: to the group it does not matter that w1's connection is gone. Only idle goes on growing:")
	s.do(ctx, "XINFO", "CONSUMERS", eventsKey, group)

	s.step(ctx, "Back: w1 is started again, does its own ten, and then the others")
	w1 = start("works")
	s.until(ctx, "w1 has done all", func() bool { return settled(ctx, s, group) == 60 })
	note("back")
	w1.term()

	s.step(ctx, "Nil: five more, and one of them is deleted before anybody has read it")
	addEntries(ctx, s, "job", 61, 65)
	last := must(s.redis.XRevRangeN(ctx, eventsKey, "+", "-", 3).Result())
	s.do(ctx, "XDEL", eventsKey, last[2].ID)
	note("one deleted")

	s.table([]string{"state", "entries in the stream", "entries-read", "lag", "pending", "idle, ms", "connected"}, table...)
	s.conclude("lag is what was never handed out, pending what was handed out and not acknowledged; neither tells a slow consumer from a dead one, and idle only says for how long nothing was heard of it.")
}

func w1Connected(ctx context.Context, s *session) bool {
	return strings.Contains(must(s.redis.ClientList(ctx).Result()), " name="+prefix+"w1 ")
}

// lagWorks does its own entries first, then new ones.
func lagWorks(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
	})
}

// lagHangs takes ten entries and never comes to an end with the first of them.
func lagHangs(ctx context.Context, w *worker) {
	for taken := 0; taken < 10; {
		taken += len(w.readGroup(ctx, group, ">"))
	}
	select {}
}
