package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	deleteEvery = time.Minute
	deleteBatch = 1000
	// deletePause lets others have the disk between two batches.
	deletePause = 20 * time.Millisecond
)

// deleteOld deletes what was published longer than Retention ago, until ctx is done.
func (r *Relay) deleteOld(ctx context.Context) {
	calm := calm{log: r.cfg.Logger, what: "outbox: delete old rows"}
	for ctx.Err() == nil {
		n, err := r.deleteSome(ctx)
		wait := lessUpTo(deleteEvery, 4)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = calm.failed(err)
		case n == deleteBatch:
			wait = deletePause
		}
		if err == nil {
			calm.worked()
		}
		sleep(ctx, wait)
	}
}

// Of clock_timestamp(), which differs from row to row, Postgres makes no condition for an index: all published rows would be read
// (https://www.postgresql.org/docs/current/xfunc-volatility.html).
const deleteSQL = `
	delete from outbox where id = any (array (
		select id from outbox
		where published_at < statement_timestamp() - make_interval(secs => $1::float8)
		order by published_at
		limit $2::bigint
		for update skip locked))`

// deleteSome deletes one batch, the oldest first. Rows that another replica deletes right now are left to it.
func (r *Relay) deleteSome(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := r.pool.Exec(ctx, deleteSQL, unprepared, r.cfg.Retention.Seconds(), deleteBatch)
	if err != nil {
		return 0, fmt.Errorf("delete rows published over %s ago: %w", r.cfg.Retention, err)
	}
	return tag.RowsAffected(), nil
}
