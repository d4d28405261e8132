package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

var fifo = lab{
	name:  "fifo",
	about: "a list is first in, first out; with several consumers, jobs still finish out of order",
	run:   runFIFO,
	roles: map[string]func(context.Context, *worker){"consumer": fifoConsumer},
}

const finishedKey = prefix + "finished"

func runFIFO(ctx context.Context, s *session) {
	s.step(ctx, "By hand: what goes in first comes out first")
	s.do(ctx, "LPUSH", jobsKey, "a", "b", "c")
	s.do(ctx, "BRPOP", jobsKey, 1)
	s.do(ctx, "BRPOP", jobsKey, 1)
	s.do(ctx, "BRPOP", jobsKey, 1)
	s.note("LPUSH puts in on the left, BRPOP takes from the right: a, b, c. Empty now, so BRPOP waits, here for a second:")
	s.do(ctx, "BRPOP", jobsKey, 1)

	var rows [][]any
	for _, consumers := range []int{1, 4} {
		s.clear(ctx)
		s.step(ctx, "%s jobs for %d at a time: each takes between 0 and 3 ms", thousands(jobs), consumers)
		pushJobs(ctx, s)
		f := &fleet{s: s, role: "fifo/consumer"}
		defer f.stop()
		begin := time.Now()
		f.start(ctx, consumers, 2)
		s.until(ctx, "all jobs are finished", func() bool {
			n := s.ask(ctx, "LLEN", finishedKey)
			s.progress("finished", n, jobs)
			return n == jobs
		})
		took := time.Since(begin)
		f.stop()
		order := finished(ctx, s)
		rows = append(rows, []any{consumers, len(order), inversions(order), fmt.Sprintf("%.1f", took.Seconds())})
		s.do(ctx, "LRANGE", finishedKey, 100, 109)
	}
	s.table([]string{"consumers", "finished", "pairs in the wrong order", "seconds"}, rows...)
	s.conclude("a list hands jobs out in order, but only one consumer at a time finishes them in order.")
}

// pushJobs puts the jobs 1 to 1,000 into the list, in one command.
func pushJobs(ctx context.Context, s *session) {
	args := []any{"LPUSH", jobsKey}
	for job := 1; job <= jobs; job++ {
		args = append(args, job)
	}
	s.do(ctx, args...)
}

// fifoConsumer takes jobs for ever, and writes down each one that it has finished.
func fifoConsumer(ctx context.Context, w *worker) {
	w.popJobs(ctx, func(job string) {
		n := must(strconv.ParseUint(job, 10, 64))
		// The same job takes the same time, whoever does it.
		work(time.Duration(rand.New(rand.NewPCG(n, 0)).IntN(3000)) * time.Microsecond)
		check(w.redis.RPush(ctx, finishedKey, job).Err())
	})
}

// finished returns the jobs in the order in which they were finished.
func finished(ctx context.Context, s *session) []int {
	var order []int
	for _, job := range must(s.redis.LRange(ctx, finishedKey, 0, -1).Result()) {
		order = append(order, must(strconv.Atoi(job)))
	}
	return order
}

// inversions counts the pairs of which the later one in order was pushed earlier.
func inversions(order []int) int {
	n := 0
	for i, first := range order {
		for _, second := range order[i+1:] {
			if second < first {
				n++
			}
		}
	}
	return n
}
