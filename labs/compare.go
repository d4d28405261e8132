package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var compare = lab{
	name:  "compare",
	about: "list, list + LMOVE and stream side by side, all measured in this run (--blank prints the table empty)",
	run:   runCompare,
	blank: func(s *session) { printComparison(s, nil) },
	roles: map[string]func(context.Context, *worker){
		"list": together(compareList), "list + LMOVE": together(compareLMove), "stream": together(compareStream),
	},
}

const (
	drained   = 2000 // jobs for one consumer
	inHand    = 10   // jobs of a process that dies
	crashes   = 1000 // of consumers
	perKill   = 25   // consumers in a process, so many crash with each kill -9
	atOnce    = 2    // processes
	crashJobs = 3000 // three times what can be lost, so that none of the crashes comes after the last job
	// timeout is how long a job may be in somebody's hands: ten jobs of 20 ms are handed out together, and all must be done by then.
	timeout = 500 * time.Millisecond
)

// rows are what is compared. Each kind fills them from top to bottom.
var rows = []string{
	"left of 2,000 messages when all are done",
	"deliveries of 1,000 to two kinds of consumers",
	"done by others, of a dead process's 10",
	"pairs in the wrong order, 1 consumer",
	"bytes in memory for a message of 200",
	"messages a second, 1 consumer without work",
	"lost in 1,000 crashes",
	"done more than once in them",
}

// kind is one way to queue jobs: how they are put in, and what the server knows of them.
type kind struct {
	name string
	// add puts in the jobs 1 to n, for these groups where the kind has groups.
	add func(ctx context.Context, s *session, n int, groups ...string)
	// untaken is how many of n jobs nobody was given yet, undone how many are to be done still, as far as the server knows.
	untaken, undone func(ctx context.Context, s *session, n int) int
	// forgets says that a job in a worker's hands is none of the server's business any more.
	forgets bool
	// reclaims says that a process beside the consumers gives back what the dead had.
	reclaims bool
	// kept are the commands that count what is stored; key is where the jobs wait.
	kept [][]any
	key  string
}

func kinds() []kind {
	waiting := func(ctx context.Context, s *session, _ int) int { return s.ask(ctx, "LLEN", jobsKey) }
	jobs, processing, events := []any{"LLEN", jobsKey}, []any{"LLEN", processingKey}, []any{"XLEN", eventsKey}
	return []kind{
		{name: "list", add: addJobs, untaken: waiting, undone: waiting, forgets: true, kept: [][]any{jobs}, key: jobsKey},
		{
			name: "list + LMOVE", add: addJobs, untaken: waiting, kept: [][]any{jobs, processing}, key: jobsKey, reclaims: true,
			undone: func(ctx context.Context, s *session, _ int) int { return inBothLists(ctx, s) },
		},
		{
			name: "stream", add: addJobEntries, kept: [][]any{events}, key: eventsKey,
			untaken: func(ctx context.Context, s *session, n int) int { return n - delivered(ctx, s) },
			undone: func(ctx context.Context, s *session, n int) (sum int) {
				for _, g := range must(s.redis.XInfoGroups(ctx, eventsKey).Result()) {
					sum += n - int(g.EntriesRead-g.Pending)
				}
				return sum
			},
		},
	}
}

func runCompare(ctx context.Context, s *session) {
	s.step(ctx, "By hand: the same job in all three, and its worker dies")
	s.do(ctx, "LPUSH", jobsKey, "a")
	s.do(ctx, "BRPOP", jobsKey, 1)
	s.do(ctx, "EXISTS", jobsKey)
	s.do(ctx, "LPUSH", jobsKey, "a")
	s.do(ctx, "LMOVE", jobsKey, processingKey, "RIGHT", "LEFT")
	s.do(ctx, "LRANGE", processingKey, 0, -1)
	s.do(ctx, "XADD", eventsKey, "*", "job", "a")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "STREAMS", eventsKey, ">")
	s.do(ctx, "XPENDING", eventsKey, group)
	s.note("The list knows nothing of a. The second list knows a, the stream knows who has it, and since when.")

	columns := map[string][]any{}
	for _, k := range kinds() {
		s.step(ctx, "%s: %s jobs of 200 bytes; two kinds of consumers; a dead process; %s crashes", k.name, thousands(drained), thousands(crashes))
		left, wrong, size, rate := k.drain(ctx, s)
		deliveries := k.twoKinds(ctx, s)
		rescued := k.takeOver(ctx, s)
		lost, again := k.crash(ctx, s)
		columns[k.name] = []any{left, deliveries, rescued, wrong, size, rate, lost, again}
	}
	printComparison(s, columns)
	s.conclude("a list forgets and is small; LMOVE keeps what is in work, and you write the rest; a stream has groups, owners and a past, and must be trimmed.")
}

// printComparison prints a column for each kind, and lines to write on where there is none.
func printComparison(s *session, columns map[string][]any) {
	head := []string{"what"}
	table := make([][]any, len(rows))
	for i, row := range rows {
		table[i] = []any{row}
	}
	for _, k := range kinds() {
		head = append(head, k.name)
		for i := range table {
			cell := any("______")
			if columns != nil {
				cell = columns[k.name][i]
			}
			table[i] = append(table[i], cell)
		}
	}
	s.table(head, table...)
}

// drain has one consumer do all jobs as fast as it can.
func (k kind) drain(ctx context.Context, s *session) (left, wrong, size, rate int) {
	s.clear(ctx)
	k.add(ctx, s, drained, group)
	size = s.count(ctx, "MEMORY", "USAGE", k.key, "SAMPLES", 0) / drained
	f := k.workers(s, "group="+group)
	defer f.stop()
	f.start(ctx, 1, 0)
	begin := time.Now()
	k.awaitDone(ctx, s, drained, 1)
	rate = int(drained / time.Since(begin).Seconds())
	f.stop()
	for _, command := range k.kept {
		left += s.count(ctx, command...)
	}
	return left, inversions(finished(ctx, s)), size, rate
}

// twoKinds has mails sent and points credited for the same jobs, each in a group of its own where there are groups.
func (k kind) twoKinds(ctx context.Context, s *session) (deliveries int) {
	s.clear(ctx)
	mailer, bonus := k.workers(s, "group=mailer"), k.workers(s, "group=bonus")
	defer mailer.stop()
	defer bonus.stop()
	k.add(ctx, s, jobs, "mailer", "bonus")
	mailer.start(ctx, 1, 0)
	bonus.start(ctx, 1, 0)
	k.awaitDone(ctx, s, jobs, 2)
	mailer.stop()
	bonus.stop()
	s.note("1,000 jobs for two kinds of consumers; deliveries:")
	return s.count(ctx, "LLEN", finishedKey)
}

// takeOver kills a process that has a job in the hands of each of its consumers, and returns how many of these jobs another one did.
func (k kind) takeOver(ctx context.Context, s *session) (rescued int) {
	s.clear(ctx)
	k.add(ctx, s, inHand, group)
	dead := k.workers(s, "group="+group, fmt.Sprintf("consumers=%d", inHand), "ms=60000")
	defer dead.stop()
	dead.start(ctx, 1, 0)
	s.until(ctx, "it has all of them", func() bool { return k.untaken(ctx, s, inHand) == 0 })
	dead.stop()
	other := k.workers(s, "group="+group)
	defer other.stop()
	defer k.reclaimer(ctx, s).stop()
	other.named = 1 // w1 is dead
	other.start(ctx, 1, 0)
	k.awaitDone(ctx, s, inHand, 1)
	other.stop()
	s.note("10 jobs, kill -9 for the process that has all of them; another one is started, and does:")
	return s.count(ctx, "LLEN", finishedKey)
}

// crash kills consumers, twenty-five with each kill -9, and returns how many jobs nobody has done, and how many somebody did again.
func (k kind) crash(ctx context.Context, s *session) (lost, again int) {
	s.clear(ctx)
	k.add(ctx, s, crashJobs, group)
	s.note("%s jobs, 20 ms each, for %d processes of %d consumers; %d times kill -9 for a process, and so %s crashes of a consumer:",
		thousands(crashJobs), atOnce, perKill, crashes/perKill, thousands(crashes))
	defer k.reclaimer(ctx, s).stop()
	f := k.workers(s, "group="+group, fmt.Sprintf("consumers=%d", perKill), "ms=20")
	f.sameName = true
	defer f.stop()
	f.start(ctx, atOnce, 0)
	f.killWhile(ctx, crashes/perKill, crashJobs, func() int { return crashJobs - k.untaken(ctx, s, crashJobs) })
	k.awaitDone(ctx, s, crashJobs, atOnce*perKill)
	f.stop()
	s.do(ctx, "LLEN", finishedKey)
	all := finished(ctx, s)
	slices.Sort(all)
	distinct := len(slices.Compact(slices.Clone(all)))
	return crashJobs - distinct, len(all) - distinct
}

func (k kind) workers(s *session, args ...string) *fleet {
	return &fleet{s: s, role: "compare/" + k.name, args: args}
}

// reclaimer starts one where the kind needs it.
func (k kind) reclaimer(ctx context.Context, s *session) *fleet {
	f := &fleet{s: s, role: "lmove/reclaimer", args: []string{fmt.Sprintf("timeout=%d", timeout.Milliseconds())}}
	if k.reclaims {
		f.start(ctx, 1, 0)
	}
	return f
}

// awaitDone waits until all that can be done is done. Where the server does not know what is in work, so many consumers must wait for more.
func (k kind) awaitDone(ctx context.Context, s *session, n, consumers int) {
	s.until(ctx, "all are done", func() bool {
		left := k.undone(ctx, s, n)
		s.progress("done", max(n-left, 0), n)
		return left == 0 && (!k.forgets || waiting(ctx, s) == consumers)
	})
}

// addJobs puts the jobs into the list, each a number and the payload.
func addJobs(ctx context.Context, s *session, n int, _ ...string) {
	values := make([]any, n)
	for i := range values {
		values[i] = fmt.Sprint(i+1, ":", payload)
	}
	check(s.redis.LPush(ctx, jobsKey, values...).Err())
}

// addJobEntries puts the same into the stream.
func addJobEntries(ctx context.Context, s *session, n int, groups ...string) {
	pipe := s.redis.Pipeline()
	for job := range n {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{"job", fmt.Sprint(job+1, ":", payload)}})
	}
	for _, group := range groups {
		pipe.XGroupCreate(ctx, eventsKey, group, "0")
	}
	must(pipe.Exec(ctx))
}

// together makes of a role one that several consumers play in one process, each with a name and a connection of its own. A kill -9 of the process is the death of
// each of them: none can do or say anything more, and Redis sees the connection of each close.
func together(role func(context.Context, *worker)) func(context.Context, *worker) {
	return func(ctx context.Context, w *worker) {
		n := w.number("consumers", 1)
		ended := make(chan error)
		for i := range n {
			one := &worker{name: fmt.Sprintf("%s-%d", w.name, i+1), args: w.args, term: w.term}
			opt := *w.redis.Options()
			opt.ClientName = prefix + one.name
			one.redis = newClient(&opt)
			go func() { ended <- caught(func() { role(ctx, one) }) }()
		}
		for range n {
			check(<-ended)
		}
	}
}

// The consumers are those of the labs list-loss, lmove and stream.

func compareList(ctx context.Context, w *worker) {
	w.popJobs(ctx, func(job string) { finishJob(ctx, w, job) })
}

func compareLMove(ctx context.Context, w *worker) {
	w.moveJobs(ctx, func(job string) { finishJob(ctx, w, job) })
}

func compareStream(ctx context.Context, w *worker) {
	group := w.args["group"]
	w.claimThenNew(ctx, group, timeout, func(e redis.XMessage) {
		finishJob(ctx, w, e.Values["job"].(string))
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
	})
}

// finishJob does the work and writes down which job was finished.
func finishJob(ctx context.Context, w *worker, job string) {
	number, _, _ := strings.Cut(job, ":")
	work(time.Duration(w.number("ms", 0)) * time.Millisecond)
	check(w.redis.RPush(ctx, finishedKey, must(strconv.Atoi(number))).Err())
}
