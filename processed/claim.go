package processed

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ClaimSQL is the statement of [Claim], for those who want marker and work in one statement: it can be the body of the
// first WITH query, and returns event_id for each event that is new. Its parameters are $1, the consumer, and $2, the event
// ids as text[]. An id may be there twice and is returned once; see to it that the rest of the statement does not do its
// work twice.
const ClaimSQL = `
	insert into processed (consumer, event_id)
	select $1::text, id
	from unnest($2::text[]) as id
	order by id collate "C"
	on conflict (consumer, event_id) do nothing
	returning event_id`

// Claim marks the events as done by the consumer and returns those that were not before, each once, in byte order. The work
// for these belongs into tx; the others need none. Where another transaction has claimed one of them and is not yet committed, Claim
// waits for it, for lock_timeout at most. Any number of ids is one statement.
func Claim(ctx context.Context, tx pgx.Tx, consumer string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, ClaimSQL, consumer, ids)
	if err != nil {
		return nil, fmt.Errorf("claim %d events for %s: %w", len(ids), consumer, err)
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("claim %d events for %s: %w", len(ids), consumer, err)
	}
	slices.Sort(fresh)
	return fresh, nil
}
