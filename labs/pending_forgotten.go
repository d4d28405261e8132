package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var pendingForgotten = lab{
	name:  "pending-forgotten",
	about: "a consumer that reads only > after its restart: what it had before hangs for ever",
	run:   runPendingForgotten,
	roles: map[string]func(context.Context, *worker){"forgets": readsOnlyNew, "remembers": readsOwnFirst},
}

func runPendingForgotten(ctx context.Context, s *session) {
	s.step(ctx, "By hand: read, die, come back, and read only what is new")
	s.do(ctx, "XADD", eventsKey, "*", "job", "1")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.note("Say w1 is killed here, and comes back.")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.note("Nothing new: all seems well. But:")
	s.do(ctx, "XPENDING", eventsKey, group)

	var table [][]any
	for _, part := range []struct{ how, title, role string }{
		{"reads only >", "4 workers, 5 ms an entry, 20 times kill -9 and a restart; they read only >", "forgets"},
		{"reads 0, then >", "The same, but after its restart a worker reads 0 until nothing comes, then >", "remembers"},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		addEntries(ctx, s, "job", 1, jobs)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
		f := &fleet{s: s, role: "pending-forgotten/" + part.role, sameName: true, args: []string{"drain"}}
		defer f.stop()
		f.start(ctx, 4, 0)
		f.killWhile(ctx, 20, jobs, func() int { return delivered(ctx, s) })
		hanging := awaitQuiet(ctx, s, f, jobs)
		s.note("All %s were handed out, and nobody works any more. Pending: %d. Now 200 more:", thousands(jobs), hanging)
		addEntries(ctx, s, "job", jobs+1, jobs+200)
		still := awaitQuiet(ctx, s, f, jobs+200)
		f.term()
		s.do(ctx, "XPENDING", eventsKey, group)
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, jobs + 200, done, hanging, still})
	}
	s.table([]string{"what", "entries", "done", "hanging", "hanging after 200 more"}, table...)
	s.conclude("> means \"what nobody was given yet\", so what a dead worker had must be asked for: its own with 0, that of others with XAUTOCLAIM.")
}

// readsOnlyNew has the mistake. It looks right, and is, until the first kill.
func readsOnlyNew(ctx context.Context, w *worker) {
	for !w.stopping() {
		for _, e := range w.readGroup(ctx, group, ">") {
			work(5 * time.Millisecond)
			w.done(ctx, e.Values["job"])
			check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
		}
	}
}

// readsOwnFirst does not.
func readsOwnFirst(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		work(5 * time.Millisecond)
		w.done(ctx, e.Values["job"])
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
	})
}

// delivered is how many entries the group was given.
func delivered(ctx context.Context, s *session) int {
	return int(groupInfo(ctx, s, group).EntriesRead)
}

// awaitQuiet waits until all entries were handed out and every worker has finished what it holds, and returns how many are
// pending then. A worker has finished when it waits for new entries, which CLIENT LIST tells: it is blocked in XREADGROUP.
func awaitQuiet(ctx context.Context, s *session, f *fleet, entries int) int {
	s.until(ctx, "every worker waits", func() bool {
		return delivered(ctx, s) == entries && len(f.atWork()) == len(f.members) && waiting(ctx, s) == len(f.members)
	})
	return int(groupInfo(ctx, s, group).Pending)
}
