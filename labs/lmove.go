package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

var lmove = lab{
	name:  "lmove",
	about: "LMOVE keeps a job in a second list until it is done; a reclaimer gives back what got stuck: nothing is lost",
	run:   runLMove,
	roles: map[string]func(context.Context, *worker){"consumer": lmoveConsumer, "reclaimer": lmoveReclaimer},
}

const processingKey = prefix + "processing"

func runLMove(ctx context.Context, s *session) {
	s.step(ctx, "By hand: take a job and note it in one command; give it back when its worker is dead")
	s.do(ctx, "LPUSH", jobsKey, "a", "b")
	s.do(ctx, "LMOVE", jobsKey, processingKey, "RIGHT", "LEFT")
	s.note("Say the worker is killed here. The job is still there:")
	s.do(ctx, "LRANGE", processingKey, 0, -1)
	s.note("Somebody who knows that the worker is dead gives it back, and another worker does it:")
	s.do(ctx, "LMOVE", processingKey, jobsKey, "RIGHT", "RIGHT")
	s.do(ctx, "LMOVE", jobsKey, processingKey, "RIGHT", "LEFT")
	s.note("After the work it takes the job out:")
	s.do(ctx, "LREM", processingKey, 1, "a")

	var table [][]any
	for _, part := range []struct {
		how, title string
		timeout    time.Duration
		kills      int
		args       []string
	}{
		{"kill -9", "4 workers, 5 ms a job, 20 times kill -9; a reclaimer gives back what is in processing for 500 ms", 500 * time.Millisecond, 20, nil},
		{"timeout too short", "Nobody is killed, but 5 jobs take 300 ms, and the reclaimer waits for 100 ms only", 100 * time.Millisecond, 0, []string{"slow=200"}},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		pushJobs(ctx, s)
		reclaimer := &fleet{s: s, role: "lmove/reclaimer", args: []string{fmt.Sprintf("timeout=%d", part.timeout.Milliseconds())}}
		defer reclaimer.stop()
		reclaimer.start(ctx, 1, 0)
		f := &fleet{s: s, role: "lmove/consumer", sameName: true, args: append(part.args, "drain")}
		defer f.stop()
		f.start(ctx, 4, 3)
		f.killWhile(ctx, part.kills, jobs, func() int { return takenJobs(ctx, s) })
		s.until(ctx, "both lists are empty", func() bool {
			left := inBothLists(ctx, s)
			s.progress("jobs", jobs-left, jobs)
			return left == 0
		})
		f.term()
		reclaimer.stop()
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, jobs, part.kills, done, jobs - done, repeated(ctx, s)})
	}
	s.table([]string{"what", "jobs", "workers killed", "done", "lost", "done more than once"}, table...)
	s.conclude("a job that is noted until it is done cannot be lost, but it may be done more than once: nobody can tell a slow worker from a dead one.")
}

// lmoveConsumer does jobs that stay noted in the processing list until their work is done.
func lmoveConsumer(ctx context.Context, w *worker) {
	slow := w.number("slow", 0) // each job whose number is a multiple of it takes long
	w.moveJobs(ctx, func(job string) {
		takes := 5 * time.Millisecond
		if slow > 0 && must(strconv.Atoi(job))%slow == 0 {
			takes = 300 * time.Millisecond
		}
		work(takes)
		w.done(ctx, job)
	})
}

// giveBack puts a job back to where it is taken next, unless it was finished meanwhile. Two commands would not do: a crash
// between them would lose the job, or leave it twice.
//
//	KEYS[1]  the processing list
//	KEYS[2]  the list of jobs
//	ARGV[1]  the job
//	reply    1, or 0 where it was finished
const giveBack = `
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1`

// lmoveReclaimer looks at the processing list again and again, and remembers when it first saw each job there. One that stays too long
// is given back. This is what other brokers call a visibility timeout. It may be killed itself: the next one only begins to
// count from zero.
func lmoveReclaimer(ctx context.Context, w *worker) {
	timeout := time.Duration(w.number("timeout", 0)) * time.Millisecond
	seen := map[string]time.Time{}
	for !w.stopping() {
		stillThere := map[string]time.Time{}
		for _, job := range must(w.redis.LRange(ctx, processingKey, 0, -1).Result()) {
			since, known := seen[job]
			if !known {
				since = time.Now()
			}
			if time.Since(since) < timeout {
				stillThere[job] = since
				continue
			}
			check(w.redis.Eval(ctx, giveBack, []string{processingKey, jobsKey}, job).Err())
		}
		seen = stillThere
		time.Sleep(timeout / 10)
	}
}
