package redisstream

import (
	"context"
	"fmt"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

// settle acts on the verdict of one entry.
func (s *session) settle(ctx context.Context, e *entry, err error, took time.Duration, timedOut bool) {
	after, deferred := broker.DeferredFor(err)
	switch {
	case err == nil:
		s.done(ctx, []*entry{e}, took)
	case s.table.isLost(e):
		return // reported when it was lost; its new owner decides
	case ctx.Err() != nil:
		s.table.requeue([]*entry{e}) // the drain ran out of time: released uncounted
	case broker.IsPermanent(err):
		s.table.succeeded(0)
		e.bury = &burial{deadPermanent, err.Error()}
		s.bury(ctx, e, took)
	case deferred:
		s.putOff(e, after, took)
	case broker.IsUnavailable(err):
		s.outage(ctx, []*entry{e}, err, took)
	default:
		s.table.succeeded(0) // the dependency answered
		if timedOut {
			err = fmt.Errorf("%w after %s: %w", errTimeout, s.cfg.HandlerTimeout, err)
		}
		s.fail(ctx, e, err, took)
	}
}

// done acknowledges entries whose work is done, also those that another consumer has taken meanwhile.
func (s *session) done(ctx context.Context, entries []*entry, took time.Duration) {
	if len(entries) == 0 {
		return
	}
	s.table.succeeded(len(entries))
	for _, e := range entries {
		outcome := broker.Done
		if e.IsDuplicate() {
			outcome = broker.Duplicate
		}
		s.report(&e.Delivery, outcome, took, nil)
	}
	crash.At(crash.EntryHandled)
	if s.cfg.AckDelay > 0 {
		sleep(s.draining, s.cfg.AckDelay)
	}
	s.ack(entries)
}

// putOff lets an entry wait without counting anything.
func (s *session) putOff(e *entry, after, took time.Duration) {
	s.table.stalls()
	s.report(&e.Delivery, broker.Deferred, took, nil)
	s.table.wait(e, after)
}

// outage pauses the consumer. Nothing is counted, except for an entry that meets an outage three times while others
// succeed: then it is the entry that is to blame.
func (s *session) outage(ctx context.Context, batch []*entry, err error, took time.Duration) {
	for _, e := range batch { // before they may run again
		s.observe(&e.Delivery, broker.Deferred, took)
	}
	guilty := s.table.unavailable(batch, err)
	s.outageCalm.note(err)
	for _, e := range guilty {
		s.fail(ctx, e, fmt.Errorf("met an outage three times while others succeeded: %w", err), took)
	}
}

// fail counts a failure and lets the entry wait for its next attempt, or buries it after its last.
func (s *session) fail(ctx context.Context, e *entry, err error, took time.Duration) {
	e.failures++
	if e.failures >= s.cfg.MaxAttempts {
		e.bury = &burial{deadAttempts, err.Error()}
		s.bury(ctx, e, took)
		return
	}
	crash.At(crash.EntryFailed)
	wait := jitter(s.cfg.backoff(e.failures))
	owned, failErr := s.writeFailure(ctx, e, wait)
	if failErr == nil && !owned {
		s.lose(e, "")
		return
	}
	crash.At(crash.EntryWaits)
	// Where Redis is away the count stands in memory alone: the entry is still ours, and is run again later.
	e.failed = true // it may have been written even where the answer was lost
	s.report(&e.Delivery, broker.Retried, took, err)
	s.table.wait(e, wait)
}

func (s *session) writeFailure(ctx context.Context, e *entry, wait time.Duration) (owned bool, err error) {
	ctx, cancel := s.detached(ctx)
	defer cancel()
	n, err := failScript.Run(ctx, s.cmds, []string{s.cfg.Stream, failKey(s.cfg.Stream, s.cfg.Group)},
		s.cfg.Group, s.name, e.EntryID, e.failures, wait.Milliseconds()).Int()
	return n == 1, err
}

// lose drops an entry that another consumer owns or finished.
func (s *session) lose(e *entry, owner string) {
	if d := s.table.lose(e); d != nil {
		s.report(d, broker.Lost, 0, fmt.Errorf("owned by %q now", owner))
	}
}

// report logs and counts an outcome.
func (s *session) report(d *broker.Delivery, outcome broker.Outcome, took time.Duration, err error) {
	s.observe(d, outcome, took)
	s.logOutcome(d, outcome, took, err)
}

func (s *session) observe(d *broker.Delivery, outcome broker.Outcome, took time.Duration) {
	if s.cfg.Observe != nil {
		s.cfg.Observe(d, outcome, took)
	}
}
