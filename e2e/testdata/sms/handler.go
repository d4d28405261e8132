package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
	"example.com/orderfanout/processed"
)

type handler struct {
	db     *pgxpool.Pool
	phones *phones
}

func (h *handler) handle(ctx context.Context, d *broker.Delivery) error {
	order, err := event.DecodeOrderPlaced(d.Data)
	if err != nil {
		return broker.Permanent(err)
	}
	// Before the transaction: who holds one connection and waits for a second can wait for ever.
	phone, err := h.phones.of(ctx, order.CustomerID)
	if err != nil {
		return verdict(ctx, err)
	}
	if phone == "" {
		return nil // nobody to write to: that is done, and no failure
	}
	return verdict(ctx, h.note(ctx, d.ID, order.ID, phone))
}

// note writes marker and message in one transaction: both or neither.
func (h *handler) note(ctx context.Context, eventID, orderID, phone string) error {
	return pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		fresh, err := processed.Claim(ctx, tx, group, []string{eventID})
		if err != nil || len(fresh) == 0 {
			return err // an error, or done before
		}
		_, err = tx.Exec(ctx, "insert into sms (order_id, phone, text) values ($1, $2, $3)", orderID, phone, "Your order is placed.")
		return err
	})
}

// verdict says whose fault an error is: a database that is away is not the event's, and somebody else's lock is nobody's.
func verdict(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return broker.Unavailable(err) // no answer
	case pgErr.Code == "55P03" || pgErr.Code == "40P01": // lock_timeout, deadlock
		return broker.Defer(100 * time.Millisecond)
	case pgErr.Code[:2] == "53" || pgErr.Code[:2] == "57": // no connection left, shutting down
		return broker.Unavailable(err)
	}
	return err
}
