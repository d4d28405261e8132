package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/internal/crash"
	"example.com/orderfanout/processed"
)

// consumer is who the markers in processed belong to.
const consumer = "bonus"

// store keeps accounts and ledger in Postgres.
type store struct{ pool *pgxpool.Pool }

// Each result names its type (and collation), so that a prepared statement survives a change of the schema ("cached plan must not change result type").

// creditSQL does the work for a batch, in one statement and so in one transaction:
//
//	fresh     marks the events as done and finds those that were not
//	ledger    notes these; one that is noted already was done so long ago that its marker is gone, and counts as done
//	accounts  adds up what the ledger took, a row a customer
//
// Replicas never deadlock: markers are taken in one order, a ledger row only by who has its marker, and accounts, in one order
// too, when the ledger is done.
const creditSQL = `
	with fresh as (` + processed.ClaimSQL + `
	), ledger as (
		insert into bonus_ledger (event_id, order_id, customer_id, points)
		select event_id, order_id, customer_id, points
		from unnest($2::text[], $3::uuid[], $4::text[], $5::bigint[]) as c (event_id, order_id, customer_id, points)
		join fresh using (event_id)
		order by event_id collate "C"
		on conflict (event_id) do nothing
		returning event_id, customer_id, points
	), accounts as (
		insert into bonus_accounts as a (customer_id, balance)
		select customer_id, sum(points)::bigint
		from ledger
		group by customer_id
		order by customer_id
		on conflict (customer_id) do update set balance = a.balance + excluded.balance
	)
	select event_id::text collate "C" from ledger`

// credit credits all that were not credited before, or none, and returns their event ids. No event id may be there twice. After
// an error it is not certain that nothing was done: credit them again.
func (s *store) credit(ctx context.Context, credits []credit) (map[string]bool, error) {
	n := len(credits)
	eventIDs, orderIDs, customerIDs, points := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	for i, c := range credits {
		eventIDs[i], orderIDs[i], customerIDs[i], points[i] = c.eventID, c.orderID, c.customerID, c.points
	}
	query, commit := s.pool.Query, func(context.Context) error { return nil }
	if crash.Armed(crash.BonusInserted) { // a statement by itself cannot be seen between its insert and its commit
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		query, commit = tx.Query, tx.Commit
	}
	rows, err := query(ctx, creditSQL, consumer, eventIDs, orderIDs, customerIDs, points)
	if err != nil {
		return nil, fmt.Errorf("credit %d events, the first %s: %w", n, eventIDs[0], err)
	}
	fresh := make(map[string]bool, n)
	var id string
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { fresh[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("credit %d events, the first %s: %w", n, eventIDs[0], err)
	}
	crash.At(crash.BonusInserted)
	if err := commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	crash.At(crash.BonusCommitted)
	return fresh, nil
}

// entry is a line of the ledger.
type entry struct {
	OrderID   string    `json:"order_id"`
	EventID   string    `json:"event_id"`
	Points    int64     `json:"points"`
	CreatedAt time.Time `json:"created_at"`
}

// account returns a customer's balance and the limit newest entries of the ledger that lie behind the cursor, newest first. Both
// are of one moment. A customer without an account has 0 and no entries.
func (s *store) account(ctx context.Context, customerID string, behind cursor, limit int) (balance int64, entries []entry, err error) {
	rows, err := s.pool.Query(ctx, `
		select coalesce(a.balance, 0)::bigint, coalesce(l.order_id::text, ''), coalesce(l.event_id, '')::text collate "C",
		       coalesce(l.points, 0)::bigint, coalesce(l.created_at, 'epoch')::timestamptz
		from (select $1::text as customer_id) c
		left join bonus_accounts a on a.customer_id = c.customer_id
		left join lateral (
			select order_id, event_id, points, created_at
			from bonus_ledger
			where customer_id = c.customer_id and (created_at, event_id) < ($2::timestamptz, $3::text collate "C")
			order by created_at desc, event_id desc
			limit $4::bigint
		) l on true
		order by l.created_at desc, l.event_id desc`,
		customerID, behind.createdAt, behind.eventID, limit)
	if err != nil {
		return 0, nil, fmt.Errorf("read account %s: %w", customerID, err)
	}
	var e entry
	_, err = pgx.ForEachRow(rows, []any{&balance, &e.OrderID, &e.EventID, &e.Points, &e.CreatedAt}, func() error {
		if e.EventID != "" { // the one row of an empty ledger
			e.CreatedAt = e.CreatedAt.UTC()
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read account %s: %w", customerID, err)
	}
	return balance, entries, nil
}
