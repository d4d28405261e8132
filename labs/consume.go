package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The list and the stream of most labs, and the stream's group where there is only one.
const (
	jobsKey   = prefix + "jobs"
	eventsKey = prefix + "events"
	group     = "workers"
)

// popJobs takes jobs out of the list and hands them to handle, until the worker is asked to end. From BRPOP on a job exists in this
// process only.
func (w *worker) popJobs(ctx context.Context, handle func(job string)) {
	for !w.stopping() {
		reply, err := w.redis.BRPop(ctx, time.Second, jobsKey).Result()
		if isNil(err) {
			continue // nothing came within the second
		}
		check(err)
		handle(reply[1])
	}
}

// moveJobs is popJobs with a note: it moves a job to the processing list in one command, and takes it out of there after the work.
func (w *worker) moveJobs(ctx context.Context, handle func(job string)) {
	for !w.stopping() {
		job, err := w.redis.BLMove(ctx, jobsKey, processingKey, "RIGHT", "LEFT", time.Second).Result()
		if isNil(err) {
			continue
		}
		check(err)
		handle(job)
		// A kill between these two lines repeats the job later.
		check(w.redis.LRem(ctx, processingKey, 1, job).Err())
	}
}

// inBothLists is how many jobs wait or are noted as in work. A script, so that none is on its way between the two.
func inBothLists(ctx context.Context, s *session) int {
	return s.ask(ctx, "EVAL", "return redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])", 2, jobsKey, processingKey)
}

// ownThenNew hands entries to handle until the worker is asked to end. A name that comes back may have entries of before its death: the id
// 0 asks for these. When there are none any more, the id > asks for what nobody was given yet.
func (w *worker) ownThenNew(ctx context.Context, group string, handle func(redis.XMessage)) {
	id := "0"
	for !w.stopping() {
		entries := w.readGroup(ctx, group, id)
		if len(entries) == 0 {
			id = ">"
		}
		for _, e := range entries {
			handle(e) // acknowledges it, or the id 0 would bring it again
		}
	}
}

// claimThenNew is ownThenNew for names that never come back: what anybody has had for as long as idle without acknowledging it is taken over first.
func (w *worker) claimThenNew(ctx context.Context, group string, idle time.Duration, handle func(redis.XMessage)) {
	for !w.stopping() {
		old, _, err := w.redis.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: eventsKey, Group: group, Consumer: w.name, MinIdle: idle, Start: "0", Count: 10,
		}).Result()
		check(err)
		for _, e := range append(old, w.readGroup(ctx, group, ">")...) {
			handle(e)
		}
	}
}

// readGroup reads up to ten entries. For new ones (id >) it waits for a tenth of a second.
func (w *worker) readGroup(ctx context.Context, group, id string) []redis.XMessage {
	return w.readStream(ctx, eventsKey, group, id)
}

// readStream is readGroup for any stream.
func (w *worker) readStream(ctx context.Context, stream, group, id string) []redis.XMessage {
	reply, err := w.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: w.name, Streams: []string{stream, id}, Count: 10, Block: 100 * time.Millisecond,
	}).Result()
	if isNil(err) {
		return nil
	}
	check(err)
	return reply[0].Messages
}

// addEntries adds entries with the numbers from first to last in the field. The first command is printed.
func addEntries(ctx context.Context, s *session, field string, first, last int) {
	s.do(ctx, "XADD", eventsKey, "*", field, first)
	pipe := s.redis.Pipeline()
	for n := first + 1; n <= last; n++ {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{field, n}})
	}
	must(pipe.Exec(ctx))
	s.note("and so on, up to %s %d", field, last)
}

// settled is how many entries the group has been given and has acknowledged. One reply has both numbers, so they are of one moment.
func settled(ctx context.Context, s *session, group string) int {
	info := groupInfo(ctx, s, group)
	return int(info.EntriesRead - info.Pending)
}

func groupInfo(ctx context.Context, s *session, group string) redis.XInfoGroup {
	for _, g := range must(s.redis.XInfoGroups(ctx, eventsKey).Result()) {
		if g.Name == group {
			return g
		}
	}
	check(fmt.Errorf("there is no group %s", group))
	return redis.XInfoGroup{}
}

// waiting is how many workers have nothing to do: CLIENT LIST shows that they are blocked in a read.
func waiting(ctx context.Context, s *session) int {
	n := 0
	for line := range strings.Lines(must(s.redis.ClientList(ctx).Result())) {
		if strings.Contains(line, " name="+prefix) && strings.Contains(line, " flags=b") {
			n++
		}
	}
	return n
}

// repeated is how many jobs were done more than once.
func repeated(ctx context.Context, s *session) int { return moreThanOnce(ctx, s, doneKey) }

// moreThanOnce is how many fields of a hash have counted beyond 1.
func moreThanOnce(ctx context.Context, s *session, key string) int {
	n := 0
	for _, times := range must(s.redis.HVals(ctx, key).Result()) {
		if times != "1" {
			n++
		}
	}
	return n
}

// splitID is an entry id's milliseconds since 1970, and its count within one.
func splitID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	return must(strconv.ParseUint(left, 10, 64)), must(strconv.ParseUint(right, 10, 64))
}
