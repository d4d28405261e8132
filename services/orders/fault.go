package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// fault says what an error of Postgres means for whoever asked.
type fault int

const (
	mistake fault = iota // the statement or its data are wrong: ours to mend, no retry helps
	again                // nothing was done, and the same statement may work at once
	away                 // nothing was done: Postgres cannot be asked, or is not able to do it for now
	unclear              // the statement was sent and no clear answer came: it may have been committed
)

// faultOf sorts an error by its SQLSTATE (https://www.postgresql.org/docs/15/errcodes-appendix.html).
func faultOf(err error) fault {
	if _, ok := errors.AsType[*noConnError](err); ok {
		return away
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if pgconn.SafeToRetry(err) {
			return again // the pool's connection had died; nothing was sent
		}
		return unclear
	}
	switch pgErr.Code {
	case "0A000", "26000", "42P05":
		// A cached plan or a prepared statement that no longer fits, after a change of the schema or behind a pooler. The
		// driver has dropped it by now.
		return again
	case "40001", "40P01":
		return again
	case "57014":
		return again // cancelled by hand
	case "57P01", "57P02":
		return unclear // the session was ended: perhaps between the commit and its answer
	}
	switch pgErr.Code[:2] {
	case "08":
		return unclear
	case "25", "28", "3D", "42", "53", "55", "57", "58":
		// Read-only after a failover, wrong password, no database or schema yet, out of something, locked, starting up.
		return away
	}
	return mistake
}

// isDuplicate reports whether err says that a row with the same unique key is there already.
func isDuplicate(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "23505"
}

// noConnError says that there was no connection to be had: Postgres is away, or the pool was busy for too long.
type noConnError struct{ err error }

func (e *noConnError) Error() string { return "get a connection: " + e.err.Error() }
func (e *noConnError) Unwrap() error { return e.err }

// unavailableError says that Postgres could not do it, and that the client should try again later.
type unavailableError struct {
	err error
	// orderID names an order of which nobody knows whether it was placed. It is "" where nothing was.
	orderID string
}

func (e *unavailableError) Error() string {
	if e.orderID != "" {
		return fmt.Sprintf("outcome of order %s is unknown: %s", e.orderID, e.err)
	}
	return e.err.Error()
}

func (e *unavailableError) Unwrap() error { return e.err }

// sleep waits for d, and reports false where ctx was done before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// calm lets one line a minute through.
type calm struct{ next atomic.Int64 }

func (c *calm) due() bool {
	now := time.Now()
	next := c.next.Load()
	return now.UnixNano() >= next && c.next.CompareAndSwap(next, now.Add(time.Minute).UnixNano())
}
