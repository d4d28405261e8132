package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
)

// pageSize is how many rows Events reads at a time.
const pageSize = 500

// Events calls page with the published events whose Time is since or later, in the order of their rows, up to 500 at a
// time. With OnlyGroup set they can be given to a [broker.Publisher] again for one group; the rows stay as they are. Rows that
// are published after the call began are left out. It stops at the first error, of page too.
func Events(ctx context.Context, pool *pgxpool.Pool, since time.Time, page func([]broker.Event) error) error {
	last, err := lastID(ctx, pool)
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		events, id, err := eventsAfter(ctx, pool, after, last, since)
		if err != nil {
			return fmt.Errorf("read events since %s: %w", since.UTC().Format(time.RFC3339), err)
		}
		if len(events) == 0 {
			return nil
		}
		if err := page(events); err != nil {
			return err
		}
		after = id
	}
}

// eventsAfter reads a page and the id of its last row.
func eventsAfter(ctx context.Context, pool *pgxpool.Pool, after, last int64, since time.Time) (events []broker.Event, id int64, err error) {
	rows, err := pool.Query(ctx, `
		select id, event_id, source, type, time, subject, partition_key, data_content_type, data_schema,
		       trace_parent, only_group, data
		from outbox
		where id > $1::bigint and id <= $2::bigint and published_at is not null and time >= $3::timestamptz
		order by id
		limit $4::bigint`,
		unprepared, after, last, since, pageSize)
	if err != nil {
		return nil, 0, err
	}
	var e broker.Event
	_, err = pgx.ForEachRow(rows, []any{&id, &e.ID, &e.Source, &e.Type, &e.Time, &e.Subject, &e.PartitionKey,
		&e.DataContentType, &e.DataSchema, &e.TraceParent, &e.OnlyGroup, &e.Data}, func() error {
		e.Time = e.Time.UTC()
		events = append(events, e)
		e.Data = nil
		return nil
	})
	return events, id, err
}

func lastID(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var last int64
	if err := pool.QueryRow(ctx, `select coalesce(max(id), 0) from outbox`, unprepared).Scan(&last); err != nil {
		return 0, fmt.Errorf("read the outbox: %w", err)
	}
	return last, nil
}
