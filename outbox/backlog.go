package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// BacklogLimit is where [Waiting] stops to count.
const BacklogLimit = 10_000

// Backlog is what waits to be published.
type Backlog struct {
	// Rows is how many rows wait; at BacklogLimit there may be more.
	Rows int
	// Oldest is the age of the row that is first in line, 0 where none waits.
	Oldest time.Duration
}

// Waiting looks at what waits in the outbox. It reads at most BacklogLimit rows of an index, so it may be asked at each
// scrape. Any role that may read the outbox can ask.
func Waiting(ctx context.Context, pool *pgxpool.Pool) (Backlog, error) {
	var b Backlog
	var seconds float64
	err := pool.QueryRow(ctx, `
		select (select count(*) from (select from outbox where published_at is null limit $1::bigint) as waiting),
		       coalesce((select extract(epoch from clock_timestamp() - created_at)::float8
		                 from outbox where published_at is null order by id + 0 limit 1), 0)`,
		unprepared, BacklogLimit).Scan(&b.Rows, &seconds)
	if err != nil {
		return Backlog{}, fmt.Errorf("count what waits in the outbox: %w", err)
	}
	b.Oldest = max(0, time.Duration(seconds*float64(time.Second)))
	return b, nil
}
