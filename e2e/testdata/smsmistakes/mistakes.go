package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/processed"
)

// mistake is which of them is made; none: the reference solution.
var mistake = os.Getenv("MISTAKE")

// noteOr does in place of note what somebody may write who has not done the labs.
func (h *handler) noteOr(ctx context.Context, eventID, orderID, phone string) error {
	insert := func() error {
		_, err := h.db.Exec(ctx, "insert into sms (order_id, phone, text) values ($1, $2, 'Your order is placed.')", orderID, phone)
		return err
	}
	switch mistake {
	case "acknowledged before the work": // lab ack-early
		go h.note(context.WithoutCancel(ctx), eventID, orderID, phone)
		return nil
	case "no marker": // lab twice
		return insert()
	case "marker first":
		fresh, err := h.claim(ctx, eventID)
		if err != nil || !fresh {
			return err
		}
		return insert()
	case "marker last":
		var done bool
		err := h.db.QueryRow(ctx, "select exists (select from processed where consumer = $1 and event_id = $2)", group, eventID).Scan(&done)
		if err != nil || done {
			return err
		}
		if err := insert(); err != nil {
			return err
		}
		_, err = h.claim(ctx, eventID)
		return err
	}
	return h.note(ctx, eventID, orderID, phone)
}

// claim is a transaction of its own.
func (h *handler) claim(ctx context.Context, eventID string) (fresh bool, err error) {
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		ids, err := processed.Claim(ctx, tx, group, []string{eventID})
		fresh = len(ids) > 0
		return err
	})
	return fresh, err
}

func connsOr() int {
	if mistake == "too many connections" {
		return 2 * conns
	}
	return conns
}

func keyOr(customer string) string {
	if mistake == "one key for all" {
		return "cache:phone:"
	}
	return "cache:phone:" + customer
}
