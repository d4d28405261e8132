package main

import (
	"context"
	"time"
)

var listLoss = lab{
	name:  "list-loss",
	about: "BRPOP and kill -9: the job in a dead worker's hands is gone, and a careless deploy loses jobs too",
	run:   runListLoss,
	roles: map[string]func(context.Context, *worker){"consumer": listConsumer},
}

func runListLoss(ctx context.Context, s *session) {
	s.step(ctx, "By hand: a worker takes a job, and dies")
	s.do(ctx, "LPUSH", jobsKey, "a", "b")
	s.do(ctx, "BRPOP", jobsKey, 1)
	s.note("Now the worker has job a, in its memory. Say it is killed here. What does Redis know of a?")
	s.do(ctx, "LRANGE", jobsKey, 0, -1)
	s.note("Nothing. BRPOP has removed it as it handed it out.")

	table := [][]any{}
	counted := func(how string, ended int) {
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{how, jobs, ended, done, jobs - done})
	}

	s.clear(ctx)
	s.step(ctx, "%s jobs for 4 workers, 5 ms each; 20 times a worker gets kill -9 and is started again", thousands(jobs))
	pushJobs(ctx, s)
	f := &fleet{s: s, role: "list-loss/consumer", sameName: true, args: []string{"drain"}}
	defer f.stop()
	f.start(ctx, 4, 2)
	f.killWhile(ctx, 20, jobs, func() int { return takenJobs(ctx, s) })
	awaitTaken(ctx, s)
	f.term()
	counted("kill -9", 20)

	for _, deploy := range []struct {
		how, what string
		args      []string
	}{
		{"deploy, SIGTERM ends a worker", "The same jobs, no kill -9, but 3 deploys: SIGTERM to all, then new ones", nil},
		{"deploy, a worker finishes its job", "The same with workers that finish their job at SIGTERM", []string{"drain"}},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", deploy.what)
		pushJobs(ctx, s)
		f := &fleet{s: s, role: "list-loss/consumer", sameName: true, args: deploy.args}
		defer f.stop()
		for n := range 3 {
			f.start(ctx, 4, 0)
			s.until(ctx, "it is time for the next deploy", func() bool { return takenJobs(ctx, s) >= (n+1)*jobs/4 })
			f.term()
		}
		f.args = []string{"drain"} // only the deploys are to lose something
		f.start(ctx, 4, 0)
		awaitTaken(ctx, s)
		f.term()
		counted(deploy.how, 12)
	}
	s.table([]string{"how workers end", "jobs", "workers ended", "done", "lost"}, table...)
	s.conclude("between BRPOP and the end of the work only the worker knows of the job; finishing at SIGTERM helps in a deploy, and nothing helps against kill -9.")
}

// listConsumer takes a job, does it, and writes down that it is done. Between BRPOP and the end of the work the job exists in
// this process only.
func listConsumer(ctx context.Context, w *worker) {
	w.popJobs(ctx, func(job string) {
		work(5 * time.Millisecond)
		w.done(ctx, job)
	})
}

// takenJobs is how many of the jobs are no longer in the list.
func takenJobs(ctx context.Context, s *session) int { return jobs - s.ask(ctx, "LLEN", jobsKey) }

func awaitTaken(ctx context.Context, s *session) {
	s.until(ctx, "all jobs are taken", func() bool {
		n := takenJobs(ctx, s)
		s.progress("jobs taken", n, jobs)
		return n == jobs
	})
}
