package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/event"
)

const points = total / 100 // of each order

// creditOneSQL does one message's work in one round trip and one transaction; an event that was done before changes nothing.
const creditOneSQL = `
	with fresh as (
		insert into processed (consumer, event_id)
		values ('bonus', $1)
		on conflict do nothing
		returning event_id
	), ledger as (
		insert into bonus_ledger (event_id, order_id, customer_id, points)
		select event_id, $2::uuid, $3::text, $4::bigint
		from fresh
		on conflict (event_id) do nothing
		returning customer_id, points
	)
	insert into bonus_accounts as a (customer_id, balance)
	select customer_id, points
	from ledger
	on conflict (customer_id) do update set balance = a.balance + excluded.balance`

// creditManySQL does the same for as many as there are in the arrays. No event id may be there twice.
const creditManySQL = `
	with fresh as (
		insert into processed (consumer, event_id)
		select 'bonus', unnest($1::text[])
		on conflict do nothing
		returning event_id
	), ledger as (
		insert into bonus_ledger (event_id, order_id, customer_id, points)
		select event_id, order_id, customer_id, points
		from unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[]) as c (event_id, order_id, customer_id, points)
		join fresh using (event_id)
		on conflict (event_id) do nothing
		returning customer_id, points
	)
	insert into bonus_accounts as a (customer_id, balance)
	select customer_id, sum(points)::bigint
	from ledger
	group by customer_id
	on conflict (customer_id) do update set balance = a.balance + excluded.balance`

// creditOne is the peers' bonus handler.
func creditOne(ctx context.Context, pool *pgxpool.Pool, eventID string, data []byte) error {
	order, err := event.DecodeOrderPlaced(data)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, creditOneSQL, eventID, order.ID, order.CustomerID, order.Total/100)
	return err
}

// barePgxBonus is the ceiling: the statement with the values at hand, on one connection, no broker.
func barePgxBonus(perStatement int) contender {
	return contender{
		name:     fmt.Sprintf("bare pgx, %d a statement", perStatement),
		settings: "no broker, no JSON: one connection, one prepared statement with unnest",
		n:        150 * 500,
		run: func(ctx context.Context, c *child) error {
			conn, err := pgx.Connect(ctx, c.postgresURL)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			var batches [][]any
			for i := 0; i < c.n; {
				var events, orders, names []string
				var credits []int64
				for ; i < c.n && len(events) < perStatement; i++ {
					events, orders = append(events, eventID(i)), append(orders, orderID(i))
					names, credits = append(names, customer(i)), append(credits, points)
				}
				batches = append(batches, []any{events, orders, names, credits})
			}
			return c.measure(func() error {
				for _, args := range batches {
					if _, err := conn.Exec(ctx, creditManySQL, args...); err != nil {
						return err
					}
				}
				return nil
			})
		},
		verify: wantCredits,
	}
}

// wantCredits holds the database to n credits, each of them once.
func wantCredits(ctx context.Context, s *servers, n int) error {
	return wantCreditsBeside(ctx, s, n, 0)
}

// wantCreditsBeside is wantCredits where there are older markers.
func wantCreditsBeside(ctx context.Context, s *servers, n, older int) error {
	var processed, ledger, balances int
	err := queryRow(ctx, s, `
		select (select count(*) from processed where consumer = 'bonus'),
			(select count(*) from bonus_ledger),
			(select coalesce(sum(balance), 0)::bigint from bonus_accounts)`, nil, &processed, &ledger, &balances)
	if err != nil {
		return err
	}
	if processed != n+older || ledger != n || balances != n*points {
		return fmt.Errorf("%d processed, %d in the ledger, balances of %d; want %d, %d and %d", processed, ledger, balances, n+older, n, n*points)
	}
	return nil
}
