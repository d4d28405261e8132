package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orderfanout/broker"
)

// fault says what an error of Postgres means for the work that met it.
type fault int

const (
	mistake fault = iota // the statement's data are wrong: the event is to blame
	busy                 // the same statement may work in a moment
	away                 // Postgres cannot be asked, or is not able to do it for now
)

// faultOf sorts an error by its SQLSTATE (https://www.postgresql.org/docs/15/errcodes-appendix.html).
//
// A missing table or privilege is "away" too: it is the state of the database and not of the event, somebody is at work on it or
// has to be, and until then no event must use up its attempts. An event that is in truth to blame does not
// hide behind this for ever: the engine counts one that is away again and again while others are not.
func faultOf(err error) fault {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return away // no answer: refused, cut, timed out, no connection free
	}
	switch pgErr.Code {
	case "40001", "40P01", // serialization failure, deadlock
		"55P03",          // lock_timeout: somebody holds a row or the table
		"0A000",          // cached plan must not change result type
		"26000", "42P05": // prepared statement: not there, there already (behind a pooler)
		return busy
	case "57014": // statement_timeout, or cancelled by hand
		return away
	}
	switch pgErr.Code[:2] {
	case "08", // connection
		"25", // read-only after a failover, a transaction that was ended
		"28", // login
		"3D", // no such database
		"3F", // no such schema
		"42", // no table, no column, no privilege
		"53", // too many connections, full disk, no memory
		"55", // not in a state to do it
		"57", // shut down, starting up
		"58", // the machine
		"XX": // Postgres itself
		return away
	}
	return mistake
}

// verdict tells the consumer what to do after err. ctx is the handler's own.
func verdict(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err // cancelled by the consumer, which knows why
	}
	switch faultOf(err) {
	case busy:
		return broker.Defer(50*time.Millisecond + rand.N(150*time.Millisecond))
	case away:
		return broker.Unavailable(err)
	default:
		return err
	}
}
