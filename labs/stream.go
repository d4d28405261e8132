package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var stream = lab{
	name:  "stream",
	about: "a stream notes who has which entry until it is acknowledged; after a kill -9 nothing is lost",
	run:   runStream,
	roles: map[string]func(context.Context, *worker){"comes-back": streamComesBack, "claims": streamClaims},
}

func runStream(ctx context.Context, s *session) {
	s.step(ctx, "By hand: an entry is read, and pending until XACK")
	s.do(ctx, "XADD", eventsKey, "*", "job", "1")
	s.do(ctx, "XADD", eventsKey, "*", "job", "2")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 2, "STREAMS", eventsKey, ">")
	ids := must(s.redis.XRange(ctx, eventsKey, "-", "+").Result())
	s.note("w1 does the first and acknowledges it. Then it is killed. Who has what stands in XPENDING:")
	s.do(ctx, "XACK", eventsKey, group, ids[0].ID)
	s.do(ctx, "XPENDING", eventsKey, group)

	s.step(ctx, "By hand: it comes back under its name, and asks for what is its own with 0 instead of >")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 2, "STREAMS", eventsKey, "0")

	s.step(ctx, "By hand: it does not come back, and w2 takes over: XCLAIM one entry, or XAUTOCLAIM all that are idle for so many ms")
	s.do(ctx, "XCLAIM", eventsKey, group, "w2", 0, ids[1].ID)
	s.do(ctx, "XAUTOCLAIM", eventsKey, group, "w3", 0, "0")
	s.do(ctx, "XACK", eventsKey, group, ids[1].ID)
	s.do(ctx, "XPENDING", eventsKey, group)

	var table [][]any
	for _, part := range []struct {
		how, title, role string
		sameName         bool
		traced           int
	}{
		{"restart, same name, reads 0", "4 workers, 5 ms an entry, 20 times kill -9 and a restart under the same name", "comes-back", true, 5},
		{"never back, others claim", "The same, but the dead never come back: others claim what is idle for 300 ms", "claims", false, 5},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		addEntries(ctx, s, "job", 1, jobs)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
		f := &fleet{s: s, role: "stream/" + part.role, sameName: part.sameName, args: []string{"drain"}}
		defer f.stop()
		f.start(ctx, 4, part.traced)
		f.killWhile(ctx, 20, jobs, func() int { return settled(ctx, s, group) })
		s.until(ctx, "nothing is unread or pending", func() bool { return settled(ctx, s, group) == jobs })
		f.term()
		s.do(ctx, "XPENDING", eventsKey, group)
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, jobs, 20, done, jobs - done, repeated(ctx, s)})
	}
	s.table([]string{"what", "entries", "workers killed", "done", "lost", "done more than once"}, table...)
	s.conclude("an entry belongs to somebody until it is acknowledged, so it can always be found again; done more than once is the price.")
}

// streamComesBack first takes up what it had when it was killed, then reads new entries.
func streamComesBack(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) { doEntry(ctx, w, e) })
}

// streamClaims first takes over what others have had for too long without acknowledging it, then reads new entries.
func streamClaims(ctx context.Context, w *worker) {
	w.claimThenNew(ctx, group, 300*time.Millisecond, func(e redis.XMessage) { doEntry(ctx, w, e) })
}

// doEntry does the work first and acknowledges it then. A kill between the two repeats the work later.
func doEntry(ctx context.Context, w *worker, e redis.XMessage) {
	work(5 * time.Millisecond)
	w.done(ctx, e.Values["job"])
	check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
}
