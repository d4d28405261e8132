package processed_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/processed"
)

// A batch handler that does its work for the events that are new, in the transaction that marks them.
func ExampleClaim() {
	var pool *pgxpool.Pool // of the service

	handle := func(ctx context.Context, ds []*broker.Delivery) error {
		ids := make([]string, len(ds))
		for i, d := range ds {
			ids[i] = d.ID
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			fresh, err := processed.Claim(ctx, tx, "newsletter", ids)
			if err != nil {
				return err
			}
			for _, d := range ds {
				if !slices.Contains(fresh, d.ID) {
					d.Duplicate() // done before; the log and the metrics say so
				}
			}
			_, err = tx.Exec(ctx, `update counters set readers = readers + $1 where name = 'newsletter'`, len(fresh))
			return err
		})
	}
	_ = handle
}

// Marker and work in one statement: one round trip for a whole batch.
func ExampleClaimSQL() {
	statement := `with fresh as (` + processed.ClaimSQL + `)
		insert into visits (event_id, page)
		select event_id, page
		from unnest($2::text[], $3::text[]) as v (event_id, page) join fresh using (event_id)`

	handle := func(ctx context.Context, pool *pgxpool.Pool, ids, pages []string) error {
		if _, err := pool.Exec(ctx, statement, "visits", ids, pages); err != nil {
			return fmt.Errorf("count %d visits: %w", len(ids), err)
		}
		return nil
	}
	_ = handle
}
