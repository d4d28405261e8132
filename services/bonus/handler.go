package main

import (
	"context"
	"time"

	"example.com/orderfanout/broker"
)

// statementTimeout bounds the work for a batch. It is well under HANDLER_TIMEOUT: a Postgres that hangs must be known as
// away, and not pass for a handler that fails.
const statementTimeout = 10 * time.Second

// handler credits placed orders.
type handler struct{ store *store }

// handle credits a batch: all that is new in it, or nothing. An event that cannot be credited, ever, is rejected and does
// not keep the others from it.
func (h *handler) handle(ctx context.Context, ds []*broker.Delivery) error {
	credits := make([]credit, 0, len(ds))
	known := make(map[string]bool, len(ds)) // event ids in credits
	for _, d := range ds {
		if known[d.ID] {
			continue // the same event twice in one batch
		}
		c, err := newCredit(d.Event)
		if err != nil {
			d.Reject(broker.Permanent(err))
			continue
		}
		known[d.ID] = true
		credits = append(credits, c)
	}
	if len(credits) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, timeLeft(ctx))
	defer cancel()
	fresh, err := h.store.credit(limited, credits)
	if err != nil {
		return verdict(ctx, err)
	}
	for _, d := range ds {
		switch {
		case !known[d.ID]: // rejected
		case fresh[d.ID]:
			delete(fresh, d.ID) // a second delivery of it is a repeat
		default:
			d.Duplicate()
		}
	}
	return nil
}

// timeLeft is statementTimeout, or less where the handler's own time is short.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return statementTimeout
	}
	return min(statementTimeout, time.Until(deadline)*3/4)
}
