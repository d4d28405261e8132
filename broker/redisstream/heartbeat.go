package redisstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"example.com/orderfanout/broker"
)

// renewMost bounds the entries in one renewal, so that no script holds Redis up.
const renewMost = 500

// heartbeat renews what this consumer holds several times within ClaimIdle, until ctx is done.
func (s *session) heartbeat(ctx context.Context) {
	calm := calm{log: s.log, what: "renew entries"}
	every := s.cfg.ClaimIdle / 8
	last := time.Now()
	for sleep(ctx, every) {
		began := time.Now()
		entries := s.table.stale(began, s.cfg.ClaimIdle/4)
		if began.Sub(last) > s.cfg.ClaimIdle*3/4 {
			s.holdClaims(began) // this process stood still, and perhaps Redis with it
		}
		var err error
		for part := range slices.Chunk(entries, renewMost) {
			if err = s.renew(ctx, 0, part); err != nil {
				break
			}
		}
		if err != nil && ctx.Err() == nil {
			s.holdClaims(time.Now())
			if groupGone(err) {
				s.groupLost()
				err = errors.Join(err, s.makeGroup(ctx))
			}
			sleep(ctx, min(calm.fail(err), every))
			continue
		}
		calm.ok()
		last = time.Now()
		s.shed(ctx)
	}
}

// stale returns the entries that have not been renewed for the given time, and gives up on those whose handler ignores
// its cancel.
func (t *table) stale(now time.Time, since time.Duration) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var stale []*entry
	for _, e := range t.held {
		if e.state == running && now.Sub(e.began) > t.cfg.HandlerTimeout+t.cfg.AckDelay+t.cfg.ClaimIdle/2 {
			t.giveUp(e)
		}
		if e.state != stuck && now.Sub(e.renewed) >= since {
			stale = append(stale, e)
		}
	}
	return stale
}

// renew sets the idle time of the entries, at most renewMost, and drops those that turn out to be another's. Those that
// are about to start for another time get their new count of deliveries.
func (s *session) renew(ctx context.Context, idle time.Duration, entries []*entry) error {
	ctx, cancel := s.detached(ctx)
	defer cancel()
	now := time.Now()
	args := make([]any, 3, 3+2*len(entries))
	args[0], args[1], args[2] = s.cfg.Group, s.name, idle.Milliseconds()
	byID := make(map[string]*entry, len(entries))
	for _, e := range entries {
		args = append(args, e.EntryID, s.table.count(e, idle))
		byID[e.EntryID] = e
	}
	reply, err := renewScript.Run(ctx, s.cmds, []string{s.cfg.Stream, failKey(s.cfg.Stream, s.cfg.Group)}, args...).Slice()
	if err != nil {
		return err
	}
	for _, item := range reply {
		id, what, owner := threeTexts(item)
		if e := byID[id]; e != nil {
			delete(byID, id)
			s.miss(e, what, owner)
		}
	}
	s.table.renewed(byID, now)
	return nil
}

// count is the count of deliveries to write with a renewal, -1 to leave it. A release takes a start back.
func (t *table) count(e *entry, idle time.Duration) (deliveries int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case idle > 0 && e.started:
		return e.deliveries - 1
	case idle == 0 && e.state == running && !e.started:
		return e.deliveries + 1
	}
	return -1
}

func (t *table) renewed(entries map[string]*entry, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		e.renewed = now
	}
}

// unrenewed reports whether the entry was not renewed for the given time.
func (t *table) unrenewed(e *entry, now time.Time, since time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(e.renewed) >= since
}

// miss acts on an entry that could not be renewed.
func (s *session) miss(e *entry, what, owner string) {
	if what == "owner" {
		s.lose(e, owner)
		return
	}
	// Nobody owns it: a handler that runs on it finishes, anything else is dropped. "acked" is somebody's finished work
	// or a group made anew, which will be read again; "gone" is a body that was deleted or trimmed.
	if s.table.dropIdle(e) && what == "gone" {
		s.report(&e.Delivery, broker.Lost, 0, errBodyGone)
	}
}

var errBodyGone = errors.New("its body is gone from the stream")

// dropIdle drops an entry that no handler has begun on, and reports whether it did.
func (t *table) dropIdle(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.lost || e.state == acking || e.state == stuck || e.state == running && e.cancel != nil {
		return false
	}
	e.lost = true
	t.drop(e)
	t.work.Broadcast()
	t.offer()
	return true
}

// shed gives queued entries back when no worker has become free for a second, so that a free consumer takes them.
func (s *session) shed(ctx context.Context) {
	entries := s.table.unqueue(time.Now().Add(-time.Second))
	if len(entries) == 0 {
		return
	}
	s.log.Debug("all workers are busy, giving entries back", "entries", len(entries))
	s.giveBack(ctx, entries)
}

// giveBack makes the entries look idle for long enough that any consumer takes them at once, without counting a delivery.
func (s *session) giveBack(ctx context.Context, entries []*entry) {
	for part := range slices.Chunk(entries, renewMost) {
		if err := s.renew(ctx, 2*s.cfg.ClaimIdle, part); err != nil {
			break // they become idle by themselves
		}
	}
	s.table.forget(entries...)
}

// release gives back everything that no handler has begun on, once the table is closed.
func (s *session) release() {
	s.giveBack(context.Background(), s.table.idle())
}

// unqueue takes the queued entries where all workers are busy and none has become free since the time.
func (t *table) unqueue(since time.Time) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy < t.cfg.Concurrency || t.lastRun.After(since) || t.outages > 0 {
		return nil
	}
	return append(t.queue.take(), t.solo.take()...)
}

// idle returns the entries that are queued or waiting.
func (t *table) idle() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*entry
	for _, e := range t.held {
		if e.state == queued || e.state == waiting {
			all = append(all, e)
		}
	}
	return all
}

func threeTexts(item any) (a, b, c string) {
	if list, ok := item.([]any); ok && len(list) == 3 {
		a, _ = list[0].(string)
		b, _ = list[1].(string)
		c, _ = list[2].(string)
	}
	return a, b, c
}
