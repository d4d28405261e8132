package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/event"
)

// inserted is what became of one order in insertOrders.
type inserted struct {
	// locked: the order has no key, or nobody else is at work with its key.
	locked bool
	// placed: the order is stored. Where locked is true and placed false, its key was used before.
	placed bool
}

// insertOrders stores orders, their items, their events and their keys, in one statement that is its own transaction: one round
// trip, all or none. Of several orders with one key the first is stored.
//
// A key in use is no error. Its lock tells at once where another transaction is at work with it: the insert
// alone would wait for that one's end. Locks go after the commit is visible, so whoever gets the lock later meets the row, though
// the statement's own snapshot may be too old to see it: "on conflict" looks beyond the snapshot, and inserts nothing.
// What is there then is for another statement to read.
func insertOrders(ctx context.Context, conn *pgxpool.Conn, ps []*placement) ([]inserted, error) {
	const sql = `
		with input as materialized (
		    select *, key is null or pg_try_advisory_xact_lock(hashtextextended(customer_id || ' ' || key, 0)) as locked
		    from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::timestamptz[],
		                $8::text[], $9::text[], $10::bytea[], $11::text[], $12::bytea[]) with ordinality
		         as t (id, customer_id, email, currency, total, status, created_at,
		               event_id, trace_parent, data, key, request_hash, position)
		), fresh as (
		    insert into idempotency_keys (customer_id, key, request_hash, order_id)
		    select customer_id, key, request_hash, id from input where locked and key is not null order by position
		    on conflict (customer_id, key) do nothing
		    returning order_id
		), placed as materialized (
		    select * from input where locked and (key is null or id in (select order_id from fresh))
		), placed_orders as (
		    insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
		    select id, customer_id, email, currency, total, status, created_at, event_id from placed
		), placed_items as (
		    insert into order_items (order_id, position, sku, quantity, unit_price)
		    select order_id, position, sku, quantity, unit_price
		    from unnest($13::uuid[], $14::int[], $15::text[], $16::bigint[], $17::bigint[])
		         as t (order_id, position, sku, quantity, unit_price)
		    where order_id in (select id from placed)
		), placed_events as (
		    insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data)
		    select event_id, $18::text, $19::text, created_at, id::text, customer_id, $20::text, $21::text, trace_parent, data
		    from placed order by position
		)
		select locked, id in (select id from placed) from input order by position`

	c := columns{}
	for _, p := range ps {
		c.add(p)
	}
	rows, err := conn.Query(ctx, sql, c.id, c.customerID, c.email, c.currency, c.total, c.status, c.createdAt,
		c.eventID, c.traceParent, c.data, c.key, c.hash,
		c.itemOrder, c.itemPosition, c.sku, c.quantity, c.unitPrice,
		event.SourceOrders, event.TypeOrderPlaced, event.ContentType, event.SchemaOrderPlaced)
	if err != nil {
		return nil, err
	}
	out := make([]inserted, 0, len(ps))
	for rows.Next() {
		var one inserted
		if err := rows.Scan(&one.locked, &one.placed); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(out) != len(ps) {
		return nil, fmt.Errorf("got %d rows for %d orders", len(out), len(ps))
	}
	return out, nil
}

// columns are placements turned by 90 degrees, as unnest wants them.
type columns struct {
	id                          [][16]byte
	customerID, email, currency []string
	total                       []int64
	status                      []string
	createdAt                   []time.Time
	eventID, traceParent        []string
	data                        [][]byte
	key                         []*string
	hash                        [][]byte
	itemOrder                   [][16]byte
	itemPosition                []int32
	sku                         []string
	quantity, unitPrice         []int64
}

func (c *columns) add(p *placement) {
	o := &p.order
	c.id = append(c.id, p.id)
	c.customerID = append(c.customerID, o.CustomerID)
	c.email = append(c.email, o.Email)
	c.currency = append(c.currency, o.Currency)
	c.total = append(c.total, o.Total)
	c.status = append(c.status, o.Status)
	c.createdAt = append(c.createdAt, o.CreatedAt)
	c.eventID = append(c.eventID, p.eventID)
	c.traceParent = append(c.traceParent, p.traceParent)
	c.data = append(c.data, p.data)
	var key *string
	if p.key != "" {
		key = &p.key
	}
	c.key = append(c.key, key)
	c.hash = append(c.hash, p.hash)
	for i, item := range o.Items {
		c.itemOrder = append(c.itemOrder, p.id)
		c.itemPosition = append(c.itemPosition, int32(i+1))
		c.sku = append(c.sku, item.SKU)
		c.quantity = append(c.quantity, item.Quantity)
		c.unitPrice = append(c.unitPrice, item.UnitPrice)
	}
}
