package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/broker"
)

const (
	// relayName is the row of outbox_relay: an outbox has one lease.
	relayName = "outbox"
	// statementTimeout bounds each statement, the wait for a connection included.
	statementTimeout = 5 * time.Second
	// republishTimeout is for the one that puts a whole RepublishWindow of rows back. The others' leases wait for it.
	republishTimeout = time.Minute
	// maxBatchBytes ends a batch before BatchSize.
	maxBatchBytes = 4 << 20
	// unprepared sends each statement with its text, in one round trip. No plan is cached that a change of the schema could break.
	unprepared = pgx.QueryExecModeExec
)

// binary asks for all columns as they are: as text, data alone would be twice as long.
var binary = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// batch is what take found.
type batch struct {
	waiting bool            // some row may go out
	held    bool            // the lease is ours
	known   broker.Position // where the broker stood after the last batch
	ids     []int64         // empty where the lease is not ours
	events  []broker.Event
	more    bool // there may be rows beyond this batch
}

// take gets or renews the lease and reads the batch, in one statement that holds nothing when it is done. Where no row waits it
// writes nothing, unless force is set.
//
// The lease is only given to a statement whose snapshot has its row's latest version: every batch is marked
// together with that row, so a statement that waited for the row, or came between, could still see rows as
// waiting that were marked a moment ago.
func (r *Relay) take(ctx context.Context, force bool) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := r.pool.Query(ctx, `
		with work as (
			select exists (select from outbox where published_at is null and id <> all($5::bigint[])) as waiting
		), known as (
			select expires_at, broker_server, broker_last from outbox_relay where name = $1::text
		), lease as (
			insert into outbox_relay as r (name, holder, expires_at)
			select $1::text, $2::text, clock_timestamp() + make_interval(secs => $3::float8)
			from work
			where waiting or $6::bool
			on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
			where (r.holder = excluded.holder or r.expires_at <= clock_timestamp())
			  and r.expires_at = (select expires_at from known)
			returning true as held
		)
		select work.waiting, coalesce(lease.held, false), coalesce(known.broker_server, ''), coalesce(known.broker_last, ''),
		       coalesce(o.id, 0), coalesce(o.event_id, ''), coalesce(o.source, ''), coalesce(o.type, ''),
		       coalesce(o.time, 'epoch'), coalesce(o.subject, ''), coalesce(o.partition_key, ''),
		       coalesce(o.data_content_type, ''), coalesce(o.data_schema, ''), coalesce(o.trace_parent, ''),
		       coalesce(o.only_group, ''), o.data
		from work
		left join known on true
		left join lease on true
		left join lateral (
			select id, event_id, source, type, time, subject, partition_key, data_content_type, data_schema,
			       trace_parent, only_group, data
			from outbox
			where lease.held and published_at is null and id <> all($5::bigint[])
			order by id
			limit $4::bigint
		) o on true
		order by o.id`,
		unprepared, binary, relayName, r.holder, r.cfg.LeaseTimeout.Seconds(), r.cfg.BatchSize, r.parkedIDs(), force)
	if err != nil {
		return nil, fmt.Errorf("take a batch from the outbox: %w", err)
	}
	b := &batch{ids: []int64{}} // nil would be NULL, and NULL excludes every row
	size := 0
	var id int64
	var e broker.Event
	_, err = pgx.ForEachRow(rows, []any{&b.waiting, &b.held, &b.known.Server, &b.known.Last,
		&id, &e.ID, &e.Source, &e.Type, &e.Time, &e.Subject, &e.PartitionKey,
		&e.DataContentType, &e.DataSchema, &e.TraceParent, &e.OnlyGroup, &e.Data}, func() error {
		size += len(e.Data)
		switch {
		case id == 0: // the one row that says how things stand
		case size > maxBatchBytes && len(b.ids) > 0:
			b.more = true
		default:
			e.Time = e.Time.UTC()
			b.ids, b.events = append(b.ids, id), append(b.events, e)
		}
		e.Data = nil
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take a batch from the outbox: %w", err)
	}
	b.more = b.more || len(b.ids) == r.cfg.BatchSize
	return b, nil
}

// published is what the broker has acknowledged of a batch.
type published struct {
	ids      []int64
	entryIDs []string
	position broker.Position
	lost     bool // the broker's tail may be gone
	more     bool // there is more to publish: keep the lease
}

// marked is what became of a mark.
type marked struct {
	held        bool  // false: another relay has the lease, and nothing was written
	republished int64 // rows that wait again
}

// mark writes down what was published and how far the broker is, as long as the lease is still ours, and renews it or gives
// it up. Where it is not ours any more, somebody else publishes these rows again, perhaps to a broker that has
// lost them meanwhile: then they must not be marked.
//
// Where the broker lost its tail, what was published shortly before this batch waits again; this batch was
// published after the loss.
func (r *Relay) mark(ctx context.Context, p *published) (marked, error) {
	limit := statementTimeout
	if p.lost {
		limit = republishTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lease := 0.0
	if p.more || p.lost {
		lease = r.cfg.LeaseTimeout.Seconds()
	}
	var m marked
	err := r.pool.QueryRow(ctx, `
		with lease as (
			update outbox_relay
			set broker_server = $3::text, broker_last = $4::text, expires_at = clock_timestamp() + make_interval(secs => $5::float8)
			where name = $1::text and holder = $2::text
			returning name
		), lost as (
			update outbox set published_at = null, entry_id = null
			where $6::bool and exists (select from lease)
			  and published_at > (select max(published_at) from outbox) - make_interval(secs => $7::float8)
			  and id <> all($8::bigint[])
			returning id
		), marked as (
			update outbox o set published_at = clock_timestamp(), entry_id = p.entry_id
			from unnest($8::bigint[], $9::text[]) as p (id, entry_id)
			where o.id = p.id and exists (select from lease)
		)
		select exists (select from lease), (select count(*) from lost)`,
		unprepared, relayName, r.holder, p.position.Server, p.position.Last, lease, p.lost, r.cfg.RepublishWindow.Seconds(),
		p.ids, p.entryIDs).Scan(&m.held, &m.republished)
	if err != nil {
		return m, fmt.Errorf("mark %d events as published: %w", len(p.ids), err)
	}
	return m, nil
}

// giveUp ends our lease, where it is ours.
func (r *Relay) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := r.pool.Exec(ctx, `
		update outbox_relay set expires_at = clock_timestamp()
		where name = $1::text and holder = $2::text and expires_at > clock_timestamp()`,
		unprepared, relayName, r.holder)
	if err != nil {
		return fmt.Errorf("give the outbox lease up: %w", err)
	}
	return nil
}
