package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var poison = lab{
	name:  "poison",
	about: "one entry that kills whoever works on it: what it does to all others, without and with dead letters",
	run:   runPoison,
	roles: map[string]func(context.Context, *worker){"consumer": poisonConsumer},
}

const (
	deadKey = prefix + "dead"
	// poisonJob is the one that kills its worker.
	poisonJob = "123"
	// poisonLimit is how often an entry is handed out before it goes to the dead letters.
	poisonLimit = 3
	// poisonWindow is how long a part is watched that has no end.
	poisonWindow = 3 * time.Second
)

func runPoison(ctx context.Context, s *session) {
	s.step(ctx, "By hand: how often was an entry handed out? That is all that tells a poison entry from others")
	s.do(ctx, "XADD", eventsKey, "*", "job", poisonJob)
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.note("w1 dies of it, comes back, takes it up again, dies again:")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, "0")
	s.do(ctx, "XPENDING", eventsKey, group, "-", "+", 10, "w1")
	s.note("The last number is how often. After the third time it goes to the dead letters, in one transaction with its XACK:")
	id := must(s.redis.XRange(ctx, eventsKey, "-", "+").Result())[0].ID
	s.do(ctx, "MULTI")
	s.do(ctx, "XADD", deadKey, "*", "job", poisonJob, "reason", "3 deliveries, 3 dead workers")
	s.do(ctx, "XACK", eventsKey, group, id)
	s.do(ctx, "EXEC")

	limit, claim := fmt.Sprintf("limit=%d", poisonLimit), "claim=500"
	var table [][]any
	for _, part := range []struct {
		how, title string
		workers    int
		args       []string
	}{
		{"1 worker", "1,000 entries, number 123 is poison; 1 worker, which is started again whenever it dies", 1, nil},
		{"1 worker, dead letters", "The same, but what was handed out 3 times goes to the dead letters", 1, []string{limit}},
		{"4 workers that claim", "4 workers, and what one has had for 500 ms is taken over by others: the poison goes round", 4, []string{claim}},
		{"4 workers, dead letters", "The same with dead letters", 4, []string{claim, limit}},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		addEntries(ctx, s, "job", 1, jobs)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
		f := &fleet{s: s, role: "poison/consumer", sameName: true, args: append(part.args, "drain")}
		defer f.stop()
		f.start(ctx, part.workers, 0)
		begin, deaths, good, took := time.Now(), 0, 0, time.Duration(0)
		endless := !slices.Contains(part.args, limit) // the poison entry never goes away
		s.until(ctx, "all good ones are done, or the time is over", func() bool {
			deaths += f.revive()
			good = s.ask(ctx, "HLEN", doneKey)
			s.progress("good ones done", good, jobs-1)
			if good == jobs-1 && took == 0 {
				took = time.Since(begin)
			}
			// A busy machine may need more than the window to start the next worker, and the one after.
			return endless && time.Since(begin) > poisonWindow && deaths > poisonLimit || good == jobs-1 && settled(ctx, s, group) == jobs
		})
		if took == 0 {
			took = time.Since(begin) // they are not all done, and never will be
		}
		f.stop()
		s.do(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, good, jobs - 1 - good, deaths, s.count(ctx, "XLEN", deadKey), int(float64(good) / took.Seconds())})
	}
	s.table([]string{"what", "good ones done", "left undone", "dead workers", "dead letters", "good ones a second"}, table...)
	s.conclude("without a limit one entry stops a worker for good, or goes on killing one after the other; with dead letters it costs three workers, once.")
}

// poisonConsumer takes up old entries one at a time, so that one that kills takes no neighbour along, and new ones ten at a time.
func poisonConsumer(ctx context.Context, w *worker) {
	limit := w.number("limit", 0)
	for !w.stopping() {
		if e, deliveries, ok := takeOld(ctx, w); ok {
			if limit > 0 && deliveries >= limit {
				bury(ctx, w, e, deliveries)
			} else {
				mayKill(ctx, w, e)
			}
			continue
		}
		for _, e := range w.readGroup(ctx, group, ">") {
			mayKill(ctx, w, e)
		}
	}
}

// takeOld takes the first entry that was left: by this worker itself before it died, or, with claim, by anybody for so many milliseconds. It
// says how often the entry had been handed out before.
func takeOld(ctx context.Context, w *worker) (e redis.XMessage, deliveries int, ok bool) {
	args := redis.XPendingExtArgs{Stream: eventsKey, Group: group, Start: "-", End: "+", Count: 1, Consumer: w.name}
	if w.has("claim") {
		args.Consumer, args.Idle = "", time.Duration(w.number("claim", 0))*time.Millisecond
	}
	left := must(w.redis.XPendingExt(ctx, &args).Result())
	if len(left) == 0 {
		return e, 0, false
	}
	// Where two want it, the first one sets its idle time to 0, and the second gets nothing.
	id := left[0].ID
	claimed := must(w.redis.XClaim(ctx, &redis.XClaimArgs{
		Stream: eventsKey, Group: group, Consumer: w.name, MinIdle: args.Idle, Messages: []string{id},
	}).Result())
	// What was counted above may be old: between the two commands others may have had it, and died of it.
	mine := must(w.redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: eventsKey, Group: group, Start: id, End: id, Count: 1, Consumer: w.name}).Result())
	if len(claimed) == 0 || len(mine) == 0 {
		return e, 0, false
	}
	return claimed[0], int(mine[0].RetryCount) - 1, true
}

// ackAndBury acknowledges an entry and writes its dead letter, both or neither; and neither where somebody else has done it already.
//
//	KEYS[1]  the stream
//	KEYS[2]  the dead letters
//	ARGV     group, id, job, reason
const ackAndBury = `
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 1 then
  redis.call('XADD', KEYS[2], '*', 'job', ARGV[3], 'reason', ARGV[4])
end
return 1`

func bury(ctx context.Context, w *worker, e redis.XMessage, deliveries int) {
	reason := fmt.Sprintf("%d deliveries", deliveries)
	check(w.redis.Eval(ctx, ackAndBury, []string{eventsKey, deadKey}, group, e.ID, e.Values["job"], reason).Err())
}

// mayKill does the work. The poison entry ends the process as the kernel does when it eats up the memory: nothing can be caught or
// written any more.
func mayKill(ctx context.Context, w *worker, e redis.XMessage) {
	if e.Values["job"] == poisonJob {
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	work(time.Millisecond)
	w.done(ctx, e.Values["job"])
	check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
}
