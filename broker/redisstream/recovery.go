package redisstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

// takeMost is how many entries are taken at a time, where they come within answerTime. Where they do not it is half as many the next time, and
// then one more each time.
const takeMost = 100

// recover takes over entries whose consumer is gone, until ctx is done. It carries its cursor on, so that entries at
// the front that it cannot take never hide later ones.
func (s *session) recover(ctx context.Context) {
	calm := calm{log: s.log, what: "take over entries"}
	others, own := "-", "-"
	for sleep(ctx, jitter(s.cfg.ClaimIdle/6)) {
		// Own entries that nobody here knows of: their reply was lost on the way.
		next, err := s.sweep(ctx, takeArgs{owner: s.name, idle: s.cfg.ClaimIdle, start: own})
		own = next
		if err == nil {
			others, err = s.sweep(ctx, takeArgs{idle: s.cfg.ClaimIdle, start: others})
		}
		if err == nil {
			calm.ok()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.holdClaims(time.Now())
		if groupGone(err) {
			s.groupLost()
			err = errors.Join(err, s.makeGroup(ctx))
		}
		sleep(ctx, calm.fail(err))
	}
}

// sweep takes pages until the end of the pending entries or as long as there is room and it may claim, and returns where
// to go on.
func (s *session) sweep(ctx context.Context, a takeArgs) (next string, err error) {
	for {
		if a.owner == "" && uptime(time.Now()) < s.noClaim.Load() {
			return a.start, nil
		}
		if a.most = s.table.roomNow(); a.most == 0 {
			return a.start, nil
		}
		next, err := s.take(ctx, a)
		if err != nil {
			return a.start, err
		}
		if next == "" {
			return "-", nil
		}
		a.start = next
	}
}

// serverClock is what the server's clock showed, and when it was asked for.
type serverClock struct {
	ms   int64
	sent time.Time
}

// at is the latest, in ms since 1970, that the server's clock may show when it answers at once at the given time.
func (c *serverClock) at(now time.Time) int64 {
	if c == nil {
		return 0
	}
	return c.ms + now.Sub(c.sent).Milliseconds()
}

type takeArgs struct {
	owner string // "" for any
	idle  time.Duration
	start string
	most  int
}

// take makes this consumer the owner of pending entries and takes them in. It returns the start of the next page, ""
// at the end.
func (s *session) take(ctx context.Context, a takeArgs) (next string, err error) {
	ctx, cancel := s.detached(ctx)
	defer cancel()
	// What all have pending looks idle after Redis stood still or its clock was put forward. A claim that comes
	// later than it should takes nothing, and its consumer waits until the owners have renewed.
	slack := (s.cfg.ClaimIdle / 8).Milliseconds()
	sent, latest := time.Now(), int64(0)
	if a.owner == "" {
		latest = s.clock.Load().at(sent) + slack
	}
	page := s.page.Load()
	args := []any{s.cfg.Group, s.name, a.idle.Milliseconds(), a.start, min(int64(a.most), page), a.owner, latest}
	for _, id := range s.table.stuck() {
		args = append(args, id)
	}
	reply, err := takeScript.Run(ctx, s.cmds, []string{s.cfg.Stream, failKey(s.cfg.Stream, s.cfg.Group)}, args...).Slice()
	if err != nil {
		s.page.Store(max(page/2, 1))
		return a.start, err
	}
	s.page.Store(min(page+1, takeMost))
	if len(reply) < 2 {
		return a.start, errReply
	}
	next, _ = reply[0].(string)
	now, _ := reply[1].(int64)
	clock := s.clock.Swap(&serverClock{now, sent})
	if time.Since(sent) > s.cfg.ClaimIdle/4 || clock != nil && now > clock.at(sent)+slack {
		s.holdClaims(time.Now())
	}
	var taken []*entry
	for _, item := range reply[2:] {
		e, owner, err := takenEntry(item)
		if err != nil {
			return a.start, err
		}
		if len(e.fields()) == 0 {
			s.report(&e.Delivery, broker.Lost, 0, errBodyGone)
			continue
		}
		if owner != s.name {
			s.log.Info("took over an entry", "entry_id", e.EntryID, "event_id", e.ID, "from", owner, "deliveries", e.deliveries)
		}
		if e.bury == nil && e.delivery() > s.cfg.MaxDeliveries {
			e.bury = &burial{deadDeliveries, fmt.Sprintf("delivered %d times and never finished", e.deliveries)}
		}
		e.renewed = sent
		if limit := time.Now().Add(s.cfg.RetryMax); e.due.After(limit) {
			e.due = limit // it was written by a clock that was ahead of this one
		}
		if wait := s.wariness(e); wait > 0 && e.due.Before(time.Now().Add(wait)) {
			e.due = time.Now().Add(wait)
		}
		taken = append(taken, e)
	}
	if len(taken) > 0 {
		crash.At(crash.EntryClaimed)
	}
	s.accept(taken)
	return next, nil
}

// wariness is how long to leave an entry on which workers were lost before, so that a crash loop is slow and healthy
// entries pass meanwhile.
func (s *session) wariness(e *entry) time.Duration {
	if !e.alone() {
		return 0
	}
	return jitter(min(s.cfg.backoff(e.deliveries-1), s.cfg.ClaimIdle))
}

// takenEntry reads one entry of takeScript's reply.
func takenEntry(item any) (e *entry, owner string, err error) {
	list, ok := item.([]any)
	if !ok || len(list) != 6 {
		return nil, "", errReply
	}
	id, _ := list[0].(string)
	owner, _ = list[1].(string)
	deliveries, _ := list[2].(int64)
	failures, _ := list[3].(int64)
	wait, _ := list[4].(int64)
	values, ok := list[5].([]any)
	if !ok {
		return nil, "", fmt.Errorf("%w: entry %s", errReply, id)
	}
	fields := make([]string, len(values))
	for i, v := range values {
		fields[i], _ = v.(string)
	}
	e = newEntry(id, pack(fields...))
	e.deliveries, e.started = int(deliveries), false
	e.failures, e.failed = int(failures), failures > 0
	if wait > 0 {
		e.due = time.Now().Add(time.Duration(wait) * time.Millisecond)
	}
	return e, owner, nil
}

// roomNow is for how many entries there is room.
func (t *table) roomNow() int { return t.roomBeside(0) }

// roomBeside is for how many entries there is room beside some that are coming.
func (t *table) roomBeside(coming int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.space(coming)
}

// stuck returns the ids of entries whose handler ignores its cancel: others may take them, this consumer must not.
func (t *table) stuck() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, e := range t.held {
		if e.state == stuck {
			ids = append(ids, id)
		}
	}
	return ids
}

// tidy removes consumers that are gone for good, now and then, until ctx is done.
func (s *session) tidy(ctx context.Context) {
	calm := calm{log: s.log, what: "remove old consumers"}
	for sleep(ctx, jitter(max(min(s.cfg.ConsumerExpiry/6, 10*time.Minute), 100*time.Millisecond))) {
		removed, err := tidyScript.Run(ctx, s.cmds, []string{s.cfg.Stream},
			s.cfg.Group, s.name, s.cfg.ConsumerExpiry.Milliseconds()).StringSlice()
		switch {
		case err == nil:
			calm.ok()
			if len(removed) > 0 {
				s.log.Info("removed consumers that were idle with nothing pending", "consumers", removed)
			}
		case ctx.Err() == nil && !groupGone(err):
			calm.fail(err)
		}
	}
}
