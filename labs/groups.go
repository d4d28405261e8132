package main

import (
	"context"
	"time"
)

var groups = lab{
	name:  "groups",
	about: "two groups get every message each; two jobs in one group get half each, which is a common mistake",
	run:   runGroups,
	roles: map[string]func(context.Context, *worker){"job": groupsJob},
}

func runGroups(ctx context.Context, s *session) {
	s.step(ctx, "By hand: a group has a position of its own")
	s.do(ctx, "XADD", eventsKey, "*", "order", "1")
	s.do(ctx, "XADD", eventsKey, "*", "order", "2")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, "mailer", 0)
	s.do(ctx, "XGROUP", "CREATE", eventsKey, "bonus", 0)
	s.do(ctx, "XREADGROUP", "GROUP", "mailer", "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.do(ctx, "XREADGROUP", "GROUP", "bonus", "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.note("Both have order 1. A second reader in the group bonus gets the next one:")
	s.do(ctx, "XREADGROUP", "GROUP", "bonus", "w2", "COUNT", 1, "STREAMS", eventsKey, ">")

	var table [][]any
	for _, part := range []struct {
		how, title    string
		mailer, bonus string // which group each job reads in
	}{
		{"a group each", "1,000 orders; mailer and bonus read in a group each", "mailer", "bonus"},
		{"one group for both", "The same; mailer and bonus share the group services", "services", "services"},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		addEntries(ctx, s, "order", 1, jobs)
		names := []string{part.mailer, part.bonus}
		if part.mailer == part.bonus {
			names = names[:1]
		}
		for _, name := range names {
			s.do(ctx, "XGROUP", "CREATE", eventsKey, name, 0)
		}
		mailer := &fleet{s: s, role: "groups/job", args: []string{"group=" + part.mailer, "done=mailer", "drain"}}
		bonus := &fleet{s: s, role: "groups/job", args: []string{"group=" + part.bonus, "done=bonus", "drain"}}
		defer mailer.stop()
		defer bonus.stop()
		mailer.start(ctx, 1, 3)
		bonus.start(ctx, 1, 3)
		for _, name := range names {
			s.until(ctx, name+" has done all", func() bool { return settled(ctx, s, name) == jobs })
		}
		mailer.term()
		bonus.term()
		mails, points := s.count(ctx, "SCARD", doneKey+":mailer"), s.count(ctx, "SCARD", doneKey+":bonus")
		table = append(table, []any{part.how, jobs, mails, points, jobs - mails, jobs - points})
	}
	s.table([]string{"what", "orders", "mails", "bonuses", "without a mail", "without a bonus"}, table...)
	s.conclude("one group for each job that must see everything; more consumers in the same group only to share that job's work.")
}

// groupsJob is a job such as sending mails: it reads in its group, and notes in a set of its own for which orders it was done.
func groupsJob(ctx context.Context, w *worker) {
	for !w.stopping() {
		for _, e := range w.readGroup(ctx, w.args["group"], ">") {
			work(time.Millisecond)
			check(w.redis.SAdd(ctx, doneKey+":"+w.args["done"], e.Values["order"]).Err())
			check(w.redis.XAck(ctx, eventsKey, w.args["group"], e.ID).Err())
		}
	}
}
