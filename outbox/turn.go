package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

// giveUpAfter failed publishes in a row a relay gives the lease up, in case another replica reaches the broker. Not sooner: a
// broker that is away for all is then asked by one at a time.
const giveUpAfter = 3

// next says when to take the next turn.
type next struct {
	pause time.Duration // first do nothing, whoever calls
	again bool          // then go on at once, rather than wait to be woken
}

// turn carries one batch over: the one that was read already, or what it finds. own says that a row of this process waits.
func (r *Relay) turn(ctx context.Context, own bool) next {
	b := r.ahead
	r.ahead = nil
	if b == nil && r.unmarked != nil {
		// Marking comes first: taken again, these rows would go out twice.
		return r.settle(ctx, r.unmarked)
	}
	if b == nil {
		var err error
		if b, err = r.take(ctx, r.force); err != nil {
			return r.databaseFailed(err)
		}
		r.databaseWorked()
		if !b.held {
			if b.waiting {
				return r.refused(ctx, own)
			}
			r.force = false
			return r.probe(ctx, b.known)
		}
	}
	return r.carry(ctx, b)
}

// carry publishes the batch and marks it. Where there is more, the database marks the one before and reads the one after meanwhile.
func (r *Relay) carry(ctx context.Context, b *batch) next {
	if len(b.ids) > 0 {
		crash.At(crash.RelayTook)
	}
	join := func() {}
	if b.more {
		join = r.beside(ctx, b)
	}
	// The lease ends later than this on the database's clock. A process that was frozen meanwhile publishes nothing.
	limited, cancel := context.WithDeadline(ctx, b.until)
	defer cancel()
	p, err := r.publish(limited, b)
	join()
	if err != nil {
		r.ahead = nil // this batch comes first
		return r.publishFailed(ctx, err)
	}
	if len(b.ids) > 0 {
		crash.At(crash.RelayPublished)
	}
	r.brokerWorked()
	whole := len(p.ids) == len(b.ids) && !p.lost
	if n := len(b.ids); !whole {
		r.floor.fall()
	} else if n > 0 && (r.ahead != nil || !b.more) {
		r.floor.follow(b.ids[n-1])
	}
	if r.ahead != nil && whole {
		r.unmarked, r.ahead.known = p, p.position
		return next{again: true}
	}
	r.ahead = nil // what is left of this batch, or was lost, comes first
	return r.settle(ctx, p.with(r.unmarked))
}

// beside begins to mark what was published before b, and to read what comes after it, on a connection each. What join then finds is in
// unmarked and ahead.
func (r *Relay) beside(ctx context.Context, b *batch) (join func()) {
	before := r.unmarked
	if before == nil {
		before = &published{ids: []int64{}, position: b.known, began: time.Now()}
	}
	var m marked
	var after *batch
	var markErr, readErr error
	parked, until := r.parkedIDs(), time.Now().Add(r.cfg.LeaseTimeout) // counted from before the mark
	var wg sync.WaitGroup
	wg.Go(func() { m, markErr = r.mark(ctx, before, nil, true) })
	wg.Go(func() { after, readErr = r.readAfter(ctx, b, until, before.ids, parked) })
	return func() {
		wg.Wait()
		r.settled(before, m, markErr)
		switch {
		case readErr != nil:
			r.databaseFailed(readErr)
		case m.held && len(after.ids) > 0:
			r.ahead = after
		}
	}
}

// publish gives the batch to the broker, as a whole or, where it refuses that, row by row.
func (r *Relay) publish(ctx context.Context, b *batch) (*published, error) {
	began := time.Now()
	receipt, err := r.ask(ctx, b.events, b.known)
	if err != nil {
		if errors.Is(err, broker.ErrFull) || timedOut(err) {
			return nil, err // no row is to blame
		}
		return r.publishSingly(ctx, b, err)
	}
	r.tried = 0
	return &published{ids: b.ids, entryIDs: receipt.EntryIDs, position: receipt.Position, began: began, lost: receipt.Lost}, nil
}

// ask is Publish within PublishTimeout. Without events the broker only compares itself with known.
func (r *Relay) ask(ctx context.Context, events []broker.Event, known broker.Position) (broker.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	defer cancel()
	return r.publisher.Publish(ctx, events, known)
}

// timedOut reports whether err is a time-out of a context or a connection.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// settle marks what was published and reads what comes next.
func (r *Relay) settle(ctx context.Context, p *published) next {
	m, err := r.mark(ctx, p, r.parkedIDs(), false)
	return r.settled(p, m, err)
}

// settled goes on from a mark. Where that could not be done now, what was published is remembered for the next turn.
func (r *Relay) settled(p *published, m marked, err error) next {
	if err != nil {
		r.unmarked = p
		return r.databaseFailed(err)
	}
	r.unmarked, r.force = nil, false
	r.databaseWorked()
	if !m.held {
		r.floor.fall()
		r.cfg.Logger.Warn("outbox: the lease was lost, events are published again", "events", len(p.ids))
		return next{pause: refusedPause}
	}
	if len(p.ids) > 0 {
		crash.At(crash.RelayMarked)
	}
	r.health.count(len(p.ids), m.republished)
	if p.lost {
		r.cfg.Logger.Warn("outbox: the broker may have lost its tail, events are published again",
			"events", m.republished, "window_ms", r.cfg.RepublishWindow.Milliseconds())
	}
	r.ahead = m.ahead
	return next{again: m.ahead != nil}
}

// refused tells whoever has the lease about this process's row. It may have looked before the row was there.
func (r *Relay) refused(ctx context.Context, own bool) next {
	if own {
		if err := r.notify(ctx); err != nil {
			return r.databaseFailed(err)
		}
	}
	return next{pause: refusedPause}
}

// probe asks the broker, where nothing waits and it has not answered for a while, how far it is: it may have lost what it
// had acknowledged, and no new event may come to notice it.
func (r *Relay) probe(ctx context.Context, known broker.Position) next {
	if time.Since(r.heard) < r.cfg.Sweep/2 {
		return next{}
	}
	receipt, err := r.ask(ctx, nil, known)
	if err != nil {
		return next{pause: r.brokerFailed(err)}
	}
	r.brokerWorked()
	r.force = receipt.Lost
	return next{again: receipt.Lost}
}

func (r *Relay) publishFailed(ctx context.Context, err error) next {
	r.floor.fall()
	pause := r.brokerFailed(err)
	if r.broker.fails%giveUpAfter == 0 {
		if err := r.giveUp(ctx); err != nil {
			pause = max(pause, r.databaseFailed(err).pause)
		}
	}
	return next{pause: pause, again: true}
}
