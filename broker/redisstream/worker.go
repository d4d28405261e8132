package redisstream

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

var (
	errTimeout = errors.New("handler timed out")
	errDrained = errors.New("consumer is shutting down")
)

// work runs what the table hands out, until the table is closed.
func (s *session) work(ctx context.Context) {
	for {
		batch := s.table.next()
		if batch == nil {
			return
		}
		s.process(ctx, batch)
	}
}

// process brings a batch to its verdicts. ctx ends only where the drain runs out of time.
func (s *session) process(ctx context.Context, batch []*entry) {
	began, run, n := time.Now(), batch[0].run, len(batch)
	ran := 0
	defer func() { s.table.ran(run, ran, time.Since(began)) }()

	batch = s.begin(ctx, batch)
	if len(batch) == 0 {
		return
	}
	if batch[0].bury != nil {
		s.bury(ctx, batch[0], 0)
		return
	}
	ran = n
	crash.At(crash.EntryRead)
	err, timedOut := s.handle(ctx, batch)
	took := time.Since(began)
	switch {
	case len(batch) == 1 && err == nil:
		s.settle(ctx, batch[0], batch[0].Verdict(), took, timedOut)
	case len(batch) == 1:
		s.settle(ctx, batch[0], err, took, timedOut)
	case err == nil:
		s.settleBatch(ctx, batch, took, timedOut)
	default:
		s.splitBatch(ctx, batch, err, took)
	}
}

// settleBatch gives each entry of a batch that was done its own verdict.
func (s *session) settleBatch(ctx context.Context, batch []*entry, took time.Duration, timedOut bool) {
	var done, rejected []*entry
	for _, e := range batch {
		if e.Verdict() == nil {
			done = append(done, e)
		} else {
			rejected = append(rejected, e)
		}
	}
	s.done(ctx, done, took) // first: their acks wait for no failure to be written down
	for _, e := range rejected {
		s.settle(ctx, e, e.Verdict(), took, timedOut)
	}
}

// splitBatch decides on a batch that failed as a whole: nothing is counted, and only the bad entry will fail when each is
// run in a batch of its own.
func (s *session) splitBatch(ctx context.Context, batch []*entry, err error, took time.Duration) {
	after, deferred := broker.DeferredFor(err)
	batch = s.keep(batch)
	switch {
	case ctx.Err() != nil:
		s.table.requeue(batch)
	case broker.IsUnavailable(err):
		s.outage(ctx, batch, err, took)
	case deferred:
		for _, e := range batch {
			s.putOff(e, after, took)
		}
	default:
		s.splitCalm.note(err) // where each entry then passes by itself, nothing else would tell
		for _, e := range batch {
			e.single = true
		}
		s.table.requeue(batch)
	}
}

// begin writes down the coming delivery of entries that were taken over, and asks again who owns those that it has not
// renewed for long, before any is run. It returns the entries that may be run.
func (s *session) begin(ctx context.Context, batch []*entry) []*entry {
	now := time.Now()
	s.table.hand(batch)
	var ask []*entry
	for _, e := range batch {
		if !e.started || s.table.unrenewed(e, now, s.cfg.ClaimIdle/2) {
			ask = append(ask, e)
		}
	}
	if len(ask) == 0 {
		return batch
	}
	if err := s.renew(ctx, 0, ask); err != nil {
		wait := s.beginCalm.fail(err)
		for _, e := range batch {
			s.table.wait(e, wait)
		}
		return nil
	}
	s.beginCalm.ok()
	s.table.begun(ask)
	return s.keep(batch)
}

// keep returns the entries that no other consumer has taken.
func (s *session) keep(batch []*entry) []*entry {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	kept := batch[:0:0]
	for _, e := range batch {
		if !e.lost {
			kept = append(kept, e)
		}
	}
	return kept
}

// handle calls the handler, and reports whether it outlived its time.
func (s *session) handle(ctx context.Context, batch []*entry) (err error, timedOut bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, s.cfg.HandlerTimeout, errTimeout)
	defer stop()
	s.table.running(batch, cancel)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			s.log.Error("handler panicked", "event_id", batch[0].ID, "entry_id", batch[0].EntryID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		timedOut = context.Cause(ctx) == errTimeout
	}()
	if s.cfg.HandlerDelay > 0 && !sleep(ctx, s.cfg.HandlerDelay) {
		return context.Cause(ctx), false
	}
	if s.cfg.Handle != nil {
		err = s.cfg.Handle(ctx, &batch[0].Delivery)
	} else {
		deliveries := make([]*broker.Delivery, len(batch))
		for i, e := range batch {
			deliveries[i] = &e.Delivery
		}
		err = s.cfg.HandleBatch(ctx, deliveries)
	}
	spoken(err)
	for _, e := range batch {
		spoken(e.Verdict())
	}
	return err, false
}

// spoken asks an error for its text, so that one that panics there, as a nil pointer in an error does, panics while it can be recovered from.
func spoken(err error) {
	if err != nil {
		_ = err.Error()
	}
}
