package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var ackEarly = lab{
	name:  "ack-early",
	about: "the same stream, but XACK before the work: a kill -9 loses entries again",
	run:   runAckEarly,
	roles: map[string]func(context.Context, *worker){"early": ackBeforeWork, "late": ackAfterWork},
}

func runAckEarly(ctx context.Context, s *session) {
	s.step(ctx, "By hand: acknowledge, then die")
	s.do(ctx, "XADD", eventsKey, "*", "job", "1")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.do(ctx, "XACK", eventsKey, group, must(s.redis.XRange(ctx, eventsKey, "-", "+").Result())[0].ID)
	s.note("Say w1 is killed here, before the work. It comes back, and asks for what it had:")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, "0")
	s.note("Nothing. The entry is still in the stream, but for this group it is done.")

	var table [][]any
	for _, part := range []struct{ how, title, role string }{
		{"XACK before the work", "4 workers, 5 ms an entry, 20 times kill -9 and a restart; XACK comes before the work", "early"},
		{"XACK after the work", "The same, but XACK comes after the work", "late"},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		addEntries(ctx, s, "job", 1, jobs)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
		f := &fleet{s: s, role: "ack-early/" + part.role, sameName: true, args: []string{"drain"}}
		defer f.stop()
		f.start(ctx, 4, 4)
		f.killWhile(ctx, 20, jobs, func() int { return settled(ctx, s, group) })
		s.until(ctx, "nothing is unread or pending", func() bool { return settled(ctx, s, group) == jobs })
		f.term()
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, jobs, 20, done, jobs - done, repeated(ctx, s)})
	}
	s.table([]string{"what", "entries", "workers killed", "done", "lost", "done more than once"}, table...)
	s.conclude("XACK means \"done\"; who says it earlier turns at least once into at most once.")
}

// ackBeforeWork has the mistake.
func ackBeforeWork(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
		work(5 * time.Millisecond)
		w.done(ctx, e.Values["job"])
	})
}

// ackAfterWork does not.
func ackAfterWork(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		work(5 * time.Millisecond)
		w.done(ctx, e.Values["job"])
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
	})
}
