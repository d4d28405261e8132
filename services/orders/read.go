package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/event"
)

// selectOrders reads orders o with their items, a row an order, for scanOrder. It wants a where.
const selectOrders = `
	select o.id::text, o.customer_id, o.email, o.currency, o.total, o.status, o.created_at, i.sku, i.quantity, i.unit_price
	from orders o
	cross join lateral (
	    select array_agg(sku order by position), array_agg(quantity order by position), array_agg(unit_price order by position)
	    from order_items where order_id = o.id) as i (sku, quantity, unit_price)`

func scanOrder(row pgx.Row) (event.OrderPlaced, error) {
	var o event.OrderPlaced
	var sku []string
	var quantity, price []int64
	err := row.Scan(&o.ID, &o.CustomerID, &o.Email, &o.Currency, &o.Total, &o.Status, &o.CreatedAt, &sku, &quantity, &price)
	if err != nil {
		return event.OrderPlaced{}, err
	}
	o.CreatedAt = o.CreatedAt.UTC()
	o.Items = make([]event.Item, len(sku))
	for i := range sku {
		o.Items[i] = event.Item{SKU: sku[i], Quantity: quantity[i], UnitPrice: price[i]}
	}
	return o, nil
}

// order returns the order as JSON, just as it was first answered, or errNotFound.
func (s *store) order(ctx context.Context, id uuid.UUID) (data []byte, err error) {
	err = s.ask(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		data, err = readOrder(ctx, conn, id)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read order %s: %w", id, err)
	}
	return data, nil
}

func readOrder(ctx context.Context, conn *pgxpool.Conn, id uuid.UUID) ([]byte, error) {
	o, err := scanOrder(conn.QueryRow(ctx, selectOrders+` where o.id = $1::uuid`, [16]byte(id)))
	if err != nil {
		return nil, err
	}
	return o.Encode()
}

// customerOrders returns up to limit orders of the customer, newest first: those with an id below before.
func (s *store) customerOrders(ctx context.Context, customerID string, before uuid.UUID, limit int) ([]event.OrderPlaced, error) {
	const sql = selectOrders + ` where o.customer_id = $1::text and o.id < $2::uuid order by o.id desc limit $3::int`
	var orders []event.OrderPlaced
	err := s.ask(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, customerID, [16]byte(before), limit)
		if err != nil {
			return err
		}
		orders, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.OrderPlaced, error) { return scanOrder(row) })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list orders of customer %s: %w", customerID, err)
	}
	return orders, nil
}

// ask runs a question until it has an answer: on another connection where the one it got had died. It ends within readTimeout.
// An error of Postgres that is not ours to mend comes back as an *unavailableError.
func (s *store) ask(ctx context.Context, question func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		err := s.askOnce(ctx, question)
		if err == nil || errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		switch faultOf(err) {
		case mistake:
			return err
		case away:
			return &unavailableError{err: err}
		}
		if !sleep(ctx, wait) {
			return &unavailableError{err: err}
		}
	}
}

func (s *store) askOnce(ctx context.Context, question func(context.Context, *pgxpool.Conn) error) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return question(ctx, conn)
}
