package outbox

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/broker"
)

// batch is what take found.
type batch struct {
	waiting bool            // some row may go out, or another relay has the lease and sees to it
	held    bool            // the lease is ours
	known   broker.Position // where the broker stood after the last batch
	ids     []int64         // empty where the lease is not ours
	events  []broker.Event
	more    bool      // there may be rows beyond this batch
	until   time.Time // publish nothing of it later
}

// rowColumns are what read takes of a row, if there is one. Each names its type, so that a prepared statement survives a change of the
// schema ("cached plan must not change result type").
const rowColumns = `coalesce(o.id, 0)::bigint, coalesce(o.event_id, '')::text collate "C", coalesce(o.source, '')::text,
	coalesce(o.type, '')::text, coalesce(o.time, 'epoch')::timestamptz, coalesce(o.subject, '')::text, coalesce(o.partition_key, '')::text,
	coalesce(o.data_content_type, '')::text, coalesce(o.data_schema, '')::text, coalesce(o.trace_parent, '')::text,
	coalesce(o.only_group, '')::text, o.data::bytea`

// maxBatchBytes ends a batch before BatchSize: the row that reaches it is the last.
const maxBatchBytes = 4 << 20

// batchRows selects the rows of a batch: what waits where condition is true, from an id on, without those in except, at most limit, and none after
// maxBatchBytes of data, which Postgres finds without reading it. All but condition are parameters of the statement.
func batchRows(condition, from, except, limit string) string {
	return fmt.Sprintf(`
		select * from (
			select *, id + 0 as place, sum(octet_length(data)) over (order by id + 0 rows unbounded preceding) - octet_length(data) as bytes_before
			from outbox
			where %s and published_at is null and id + 0 >= (select %s::bigint) and id <> all(%s::bigint[])
			order by id + 0
			limit %s::bigint
		) waiting where bytes_before < %d`, condition, from, except, limit, maxBatchBytes)
}

// read takes all rows. Each begins with what first takes, the same in all of them, and then has rowColumns; their id is 0 in the one row
// that is there where no row of the outbox is. A full batch has limit rows, or maxBatchBytes.
func (b *batch) read(rows pgx.Rows, limit int, first ...any) error {
	b.ids = []int64{} // nil would be NULL, and NULL excludes every row
	size := 0
	var id int64
	var e broker.Event
	_, err := pgx.ForEachRow(rows, append(first, &id, &e.ID, &e.Source, &e.Type, &e.Time, &e.Subject, &e.PartitionKey,
		&e.DataContentType, &e.DataSchema, &e.TraceParent, &e.OnlyGroup, &e.Data), func() error {
		if id != 0 {
			e.Time = e.Time.UTC()
			size += len(e.Data)
			b.ids, b.events = append(b.ids, id), append(b.events, e)
		}
		e.Data = nil
		return nil
	})
	b.more = len(b.ids) == limit || size >= maxBatchBytes
	return err
}

// settings are for the transaction that they are sent with.
//
// The first is to commit without waiting for the disk (https://www.postgresql.org/docs/current/wal-async-commit.html), where what a
// killed Postgres forgets of the last moments is done again: a batch goes out once more, or two relays send the same one.
//
// The second is to plan once for all: to plan takes longer than to run. But a plan that suits an empty outbox would
// read all of one that has grown to a million rows before Postgres looked at it again: so, by the third and the fourth, tables are read by
// their indexes only, row by row in the index's order, and the statements leave one to choose. Only with many ids to leave out it is quicker
// to plan each time: Postgres hashes a list that it can see, and compares each row with each id of one that it cannot
// (https://www.postgresql.org/docs/current/runtime-config-query.html#GUC-PLAN-CACHE-MODE).
const settings = `
	select set_config('synchronous_commit', case when $1::bool then 'off' else current_setting('synchronous_commit') end, true),
	       set_config('plan_cache_mode', case when $2::bigint <= 150 then 'force_generic_plan' else 'force_custom_plan' end, true),
	       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// transaction is a batch of statements, with so many ids to leave out, that takes one round trip: pgx sends it with one Sync, so it
// is a transaction (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING). It may be one that Postgres
// can forget.
func transaction(mayBeForgotten bool, ids int) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(settings, mayBeForgotten, ids)
	return b
}
