package main

import "context"

// lab is one experiment.
type lab struct {
	name  string
	about string // one line, what it is about to show
	run   func(ctx context.Context, s *session)
	// blank prints the lab's table empty, where it has one to be filled in by hand first.
	blank func(s *session)
	// postgres says that it needs one, with the schema lab.
	postgres bool
	// roles are the worker programs that it starts, by name.
	roles map[string]func(ctx context.Context, w *worker)
}

// labs are in the order in which they are best done.
func labs() []lab {
	return []lab{fifo, listLoss, lmove, stream, groups, ackEarly, pendingForgotten, twice, poison, maxlen, threePieces, order, dualWrite, lag, decouple, compare}
}

// jobs is how many jobs, entries or orders a lab counts, unless it says otherwise.
const jobs = 1000

// failure is what check panics with.
type failure struct{ err error }

// check ends the lab, or the worker, where err is not nil. What was deferred is still run.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v, or ends the lab like check.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught runs f and returns what check ended it with.
func caught(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
