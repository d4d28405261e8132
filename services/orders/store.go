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
	acquireTimeout = 2 * time.Second // the wait for a connection; leaves a write time for a try
	firstWait      = 10 * time.Millisecond
	mostWait       = 500 * time.Millisecond
)

// store keeps the orders in Postgres.
type store struct {
	pool *pgxpool.Pool
}

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
// away, and ends within writeTimeout. Where a try has no clear answer (a connection broke, Postgres froze), the same insert is tried
// again with the same ids: it either meets the order that was committed, or commits it.
//
// Its errors are errKeyBusy, errKeyReused, an *unavailableError, which names the order where its outcome stays unknown, or
// a mistake of ours.
func (s *store) place(ctx context.Context, p *placement) (stored, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	sent := false // an earlier try may have been committed, or may be at work still
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		got, unknown, err := s.tryPlace(ctx, p, sent)
		if err == nil {
			return got, nil
		}
		sent = sent || unknown
		final := false
		switch {
		case errors.Is(err, errKeyReused):
			return stored{}, err
		case errors.Is(err, errKeyBusy):
			if !sent {
				return stored{}, err
			}
			// Most likely it is our own earlier try that has the lock.
		case faultOf(err) == mistake:
			return stored{}, fmt.Errorf("insert order %s: %w", p.order.ID, err)
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
	}
}

// tryPlace tries once. sent says that an earlier try may have been committed; unknown, that this one may have been.
func (s *store) tryPlace(ctx context.Context, p *placement, sent bool) (got stored, unknown bool, err error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return stored{}, false, err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := insertOrders(ctx, conn, []*placement{p})
	switch {
	case err != nil && sent && isDuplicate(err):
		return stored{id: p.order.ID, data: p.data}, false, nil // by that earlier try
	case err != nil:
		return stored{}, faultOf(err) == unclear, err
	case out[0].placed:
		return stored{id: p.order.ID, data: p.data}, false, nil
	case !out[0].locked:
		return stored{}, false, errKeyBusy
	}
	got, err = replay(ctx, conn, p)
	return got, false, err
}

// acquire takes a connection from the pool.
func (s *store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, &noConnError{err}
	}
	return conn, nil
}
