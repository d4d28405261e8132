package processed

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pruneBatch is how many markers are deleted at a time.
const pruneBatch = 1000

// Of clock_timestamp(), which differs from row to row, Postgres makes no condition for an index: all markers would be read
// (https://www.postgresql.org/docs/current/xfunc-volatility.html).
const pruneSQL = `
	delete from processed
	where consumer = $1::text and event_id = any (array (
		select event_id from processed
		where consumer = $1::text and processed_at < statement_timestamp() - make_interval(secs => $2::float8)
		order by processed_at
		limit $3::bigint))`

// Prune deletes the consumer's markers that are older than olderThan on the database's clock, the oldest first, and
// returns how many. Each thousand is a transaction of its own; what was deleted before an error stays deleted. Where
// several run at once, one may leave the rest to the other.
func Prune(ctx context.Context, pool *pgxpool.Pool, consumer string, olderThan time.Duration) (int64, error) {
	var total int64
	for {
		tag, err := pool.Exec(ctx, pruneSQL, consumer, olderThan.Seconds(), pruneBatch)
		if err != nil {
			return total, fmt.Errorf("prune markers of %s over %s old: %w", consumer, olderThan, err)
		}
		total += tag.RowsAffected()
		if tag.RowsAffected() < pruneBatch {
			return total, nil
		}
	}
}
