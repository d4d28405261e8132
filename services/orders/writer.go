package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// groupSize is the most orders in one statement.
	groupSize = 64
	// queueSize is how many orders may wait for the writer; more wait outside of the queue.
	queueSize = 1024
)

// writer stores orders that come at the same time with one statement. It waits for nobody: an order that comes alone goes
// alone, and what comes while a statement is under way goes with the next. So the busier it is, the fewer statements an
// order costs. With two statements at a time they would be half as large, and a tenth fewer orders were stored.
type writer struct {
	pool  *pgxpool.Pool
	queue chan *waiting
}

// waiting is an order that waits for a writer.
type waiting struct {
	p     *placement
	taken atomic.Bool // by the writer, or by its own request, which gave up
	done  chan struct{}
	// What became of it, once done is closed.
	out inserted
	err error
}

func newWriter(pool *pgxpool.Pool) *writer {
	return &writer{pool: pool, queue: make(chan *waiting, queueSize)}
}

// run stores orders until ctx is done.
func (w *writer) run(ctx context.Context) error {
	for {
		select {
		case first := <-w.queue:
			w.insert(context.WithoutCancel(ctx), w.take(first))
		case <-ctx.Done():
			return nil
		}
	}
}

// take returns what waits right now, first included.
func (w *writer) take(first *waiting) []*waiting {
	group := make([]*waiting, 0, groupSize)
	for next := first; ; {
		if next.taken.CompareAndSwap(false, true) {
			group = append(group, next)
		}
		if len(group) == groupSize {
			return group
		}
		select {
		case next = <-w.queue:
		default:
			return group
		}
	}
}

func (w *writer) insert(ctx context.Context, group []*waiting) {
	if len(group) == 0 {
		return
	}
	ps := make([]*placement, len(group))
	for i, one := range group {
		ps[i] = one.p
	}
	out, err := insertWithin(ctx, w.pool, ps)
	for i, one := range group {
		if err == nil {
			one.out = out[i]
		}
		one.err = err
		close(one.done)
	}
}

// place stores the order together with what comes at the same time. Where ctx is done before the writer has taken the order,
// the error is a *noConnError.
func (w *writer) place(ctx context.Context, p *placement) (inserted, error) {
	one := &waiting{p: p, done: make(chan struct{})}
	select {
	case w.queue <- one:
	case <-ctx.Done():
		return inserted{}, &noConnError{ctx.Err()}
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		if one.taken.CompareAndSwap(false, true) {
			return inserted{}, &noConnError{ctx.Err()}
		}
		return inserted{}, ctx.Err() // it is on its way
	}
	return one.out, one.err
}
