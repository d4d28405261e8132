package redisstream

import (
	"context"
	"sync"
	"time"

	"example.com/orderfanout/internal/crash"
)

// acks collects entries whose work is done, until the next XACK takes them all along.
type acks struct {
	mu      sync.Mutex
	entries []*entry
	wake    chan struct{}
}

func newAcks() acks { return acks{wake: make(chan struct{}, 1)} }

// ack has the entries acknowledged.
func (s *session) ack(entries []*entry) {
	entries = s.table.acking(entries)
	s.acks.mu.Lock()
	s.acks.entries = append(s.acks.entries, entries...)
	s.acks.mu.Unlock()
	notify(s.acks.wake)
}

func (a *acks) take() []*entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := a.entries
	a.entries = nil
	return entries
}

func (a *acks) putBack(entries []*entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(entries, a.entries...)
	notify(a.wake)
}

// drop forgets acknowledgements of entries that were read before the epoch.
func (a *acks) drop(t *table, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, before := t.ofEpoch(a.entries, epoch)
	t.forget(before...)
	a.entries = kept
}

// ofEpoch divides entries into those of the epoch and those that were read before.
func (t *table) ofEpoch(entries []*entry, epoch uint64) (of, before []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		if e.epoch == epoch {
			of = append(of, e)
		} else {
			before = append(before, e)
		}
	}
	return of, before
}

// sendAcks acknowledges what is done, as many as there are at once, until ctx is done; then what is left is sent, within
// answerTime. Until Redis has answered, the entries stay held and renewed.
func (s *session) sendAcks(ctx context.Context) {
	calm := calm{log: s.log, what: "acknowledge"}
	for {
		select {
		case <-s.acks.wake:
		case <-ctx.Done():
			last, cancel := s.detached(ctx)
			defer cancel()
			for s.flush(last) != nil && sleep(last, calmFirst) {
			}
			return
		}
		if err := s.flush(ctx); err != nil {
			s.holdClaims(time.Now())
			sleep(ctx, calm.fail(err))
		} else {
			calm.ok()
		}
	}
}

// flush acknowledges all that is collected, in one round trip.
func (s *session) flush(ctx context.Context) error {
	entries := s.table.acking(s.acks.take()) // not those of a group that is gone by now
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := s.detached(ctx)
	defer cancel()
	ack := make([]any, 3, 3+len(entries))
	ack[0], ack[1], ack[2] = "XACK", s.cfg.Stream, s.cfg.Group
	var failed []any
	for _, e := range entries {
		ack = append(ack, &e.EntryID) // by a pointer: no copy on the heap
		if e.failed {
			failed = append(failed, e.EntryID)
		}
	}
	var err error
	if len(failed) == 0 {
		err = s.cmds.Do(ctx, ack...).Err()
	} else {
		pipe := s.cmds.Pipeline()
		acked := pipe.Do(ctx, ack...)
		pipe.Do(ctx, append([]any{"HDEL", failKey(s.cfg.Stream, s.cfg.Group)}, failed...)...)
		_, _ = pipe.Exec(ctx) // what stands in the way of the HDEL must not keep what is acknowledged
		err = acked.Err()
	}
	if err != nil {
		s.acks.putBack(s.table.acking(entries)) // not those of a group that is gone by now
		return err
	}
	crash.At(crash.EntryAcked)
	s.table.forget(entries...)
	return nil
}

// acking marks entries whose work is done, and returns those that can be acknowledged: not those of a group that is gone.
func (t *table) acking(entries []*entry) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := entries[:0]
	for _, e := range entries {
		if e.state = acking; e.epoch == t.epoch && !e.replaced {
			kept = append(kept, e)
		} else {
			t.drop(e)
		}
	}
	return kept
}

// addSkipped takes in entries that are acknowledged unseen.
func (t *table) addSkipped(entries []*entry) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		e.state, e.epoch, e.renewed = acking, t.epoch, now
		t.held[e.EntryID] = e
	}
}

// newEpoch starts the count of a new group. Entries that are held stay so; where they are read again, they are the same.
func (t *table) newEpoch() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch++
	return t.epoch
}
