package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The times that bound a request's work in the database, so that it is answered whatever happens there.
const (
	writeTimeout   = 5 * time.Second // an order with all tries
	tryTimeout     = 2 * time.Second // one try
	readTimeout    = 3 * time.Second // a question with all tries
	acquireTimeout = 3 * time.Second // the wait for a connection; leaves an order the time for one try
	firstWait      = 10 * time.Millisecond
	mostWait       = 500 * time.Millisecond
)

// store keeps the orders in Postgres.
type store struct {
	pool   *pgxpool.Pool
	writer *writer
}

func newStore(pool *pgxpool.Pool) *store { return &store{pool: pool, writer: newWriter(pool)} }

// stored is an order that is in the database.
type stored struct {
	id       string
	data     []byte // the order as JSON
	replayed bool   // an earlier request with this key placed it
}

var (
	// errKeyBusy says that another request with this key is at work.
	errKeyBusy = errors.New("idempotency key is in use")
	// errKeyReused says that a different request came with this key before.
	errKeyReused = errors.New("idempotency key was used for a different request")
	// errNotFound says that there is no such order.
	errNotFound = errors.New("no such order")
)

// place stores the order, once, and returns it or the one that its key stands for. It is seen through when the client has gone
// away, and ends within writeTimeout.
//
// The first try goes together with others, the next ones alone, so that an order that Postgres refuses fails no neighbour. Where a try
// has no clear answer (a connection broke, Postgres froze), the same insert is tried again with the same ids: it either meets
// the order that was committed, or commits it.
//
// Its errors are errKeyBusy, errKeyReused, an *unavailableError, which names the order where its outcome stays unknown, or
// a mistake of ours.
func (s *store) place(ctx context.Context, p *placement) (stored, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	insert, alone := s.writer.place, false
	sent := false // an earlier try may have been committed, or may be at work still
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		var got stored
		out, err := insert(ctx, p)
		switch {
		case err == nil:
			got, err = s.outcome(ctx, p, out)
		case sent && isDuplicate(err):
			got, err = stored{id: p.order.ID, data: p.data}, nil // placed by that earlier try
		case faultOf(err) == unclear:
			sent = true
		}
		final := false
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, errKeyReused):
			return stored{}, err
		case errors.Is(err, errKeyBusy):
			if !sent { // otherwise it may be our own earlier try that has the lock
				return stored{}, err
			}
		case faultOf(err) == mistake:
			if alone { // otherwise it may be a neighbour's
				return stored{}, fmt.Errorf("insert order %s: %w", p.order.ID, err)
			}
		case faultOf(err) == away:
			final = !sent
		}
		if final || !sleep(ctx, wait) {
			e := &unavailableError{err: fmt.Errorf("insert order %s: %w", p.order.ID, err)}
			if sent {
				e.orderID = p.order.ID
			}
			return stored{}, e
		}
		insert, alone = s.insertAlone, true
	}
}

// insertAlone stores the order with a statement of its own.
func (s *store) insertAlone(ctx context.Context, p *placement) (inserted, error) {
	out, err := insertWithin(ctx, s.pool, []*placement{p})
	if err != nil {
		return inserted{}, err
	}
	return out[0], nil
}

// insertWithin stores the orders over a connection of the pool, within acquireTimeout and tryTimeout.
func insertWithin(ctx context.Context, pool *pgxpool.Pool, ps []*placement) ([]inserted, error) {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return insertOrders(ctx, conn, ps)
}

// outcome says what the insert came to: the order, or the one that its key stands for.
func (s *store) outcome(ctx context.Context, p *placement, out inserted) (stored, error) {
	switch {
	case out.placed:
		return stored{id: p.order.ID, data: p.data}, nil
	case !out.locked:
		return stored{}, errKeyBusy
	}
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return stored{}, err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return replay(ctx, conn, p)
}

// acquire takes a connection from the pool. Its error is a *noConnError.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, &noConnError{err}
	}
	return conn, nil
}
