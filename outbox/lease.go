package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orderfanout/broker"
)

const (
	// relayName is the row of outbox_relay: an outbox has one lease.
	relayName = "outbox"
	// statementTimeout bounds each statement, the wait for a connection included.
	statementTimeout = 5 * time.Second
	// republishTimeout is for the one that puts a whole RepublishWindow of rows back. The others' leases wait for it.
	republishTimeout = time.Minute
	// unprepared sends a statement that is rare with its text, in one round trip.
	unprepared = pgx.QueryExecModeExec
)

// take gets or renews the lease and reads the batch, in one statement that holds nothing when it is done. Where no row waits it
// writes nothing, unless force is set. Where another relay has the lease, it does not even look.
//
// A lease that ends later than three LeaseTimeouts from now was written by a clock that is ahead of the database's, before it was set back or
// a standby took over: it counts for nothing.
//
// The lease is only given to a statement whose snapshot has its row's latest version: every batch is marked
// together with that row, so a statement that waited for the row, or came between, could still see rows as
// waiting that were marked a moment ago.
func (r *Relay) take(ctx context.Context, force bool) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	b := &batch{until: time.Now().Add(r.cfg.LeaseTimeout)}
	from, ended := r.floor.look(r.cfg.Sweep)
	except := idsFrom(from, r.parkedIDs())
	var newest int64
	tx := transaction(true, len(except))
	tx.Queue(takeSQL, relayName, r.holder, r.cfg.LeaseTimeout.Seconds(), r.cfg.BatchSize, except, force, from).Query(func(rows pgx.Rows) error {
		return b.read(rows, r.cfg.BatchSize, &b.waiting, &b.held, &newest, &b.known.Server, &b.known.Last)
	})
	if err := r.pool.SendBatch(ctx, tx).Close(); err != nil {
		return nil, fmt.Errorf("take a batch from the outbox: %w", err)
	}
	ended()
	if !b.waiting {
		r.floor.follow(newest)
	}
	return b, nil
}

var takeSQL = `
	with known as (
		select expires_at, broker_server, broker_last, holder <> $2::text and expires_at > clock_timestamp()
		       and expires_at <= clock_timestamp() + make_interval(secs => 3 * $3::float8) as others
		from outbox_relay where name = $1::text
	), work as (
		select coalesce(others, false) as others, coalesce(others, false) or
		       (select id from outbox where published_at is null and id + 0 >= (select $7::bigint) and id <> all($5::bigint[])
		        order by id + 0 limit 1) is not null as waiting
		from (select) as one left join known on true
	), lease as (
		insert into outbox_relay as r (name, holder, expires_at)
		select $1::text, $2::text, clock_timestamp() + make_interval(secs => $3::float8)
		from work
		where (waiting or $6::bool) and not others
		on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
		where (r.holder = excluded.holder or r.expires_at <= clock_timestamp()
		       or r.expires_at > clock_timestamp() + make_interval(secs => 3 * $3::float8))
		  and r.expires_at = (select expires_at from known)
		returning true as held
	)
	select work.waiting, coalesce(lease.held, false),
	       case when work.waiting then 0 else coalesce((select id from outbox order by id desc limit 1), 0) end::bigint,
	       coalesce(known.broker_server, '')::text, coalesce(known.broker_last, '')::text, ` + rowColumns + `
	from work
	left join known on true
	left join lease on true
	left join lateral (` + batchRows("lease.held", "$7", "$5", "$4") + `) o on true
	order by o.id`

// published is what the broker has acknowledged of a batch.
type published struct {
	ids      []int64
	entryIDs []string
	position broker.Position
	began    time.Time // when its publishing began: a mark may come much later, and the window of a loss is counted from this
	lost     bool      // the broker's tail may be gone
}

// with adds what was published before p, and is not marked either. After a loss that may be lost: it is left to go out again.
func (p *published) with(before *published) *published {
	if before != nil && !p.lost {
		p.ids, p.entryIDs, p.began = append(before.ids, p.ids...), append(before.entryIDs, p.entryIDs...), before.began
	}
	return p
}

// marked is what became of a mark.
type marked struct {
	held        bool   // false: another relay has the lease, and nothing was written
	republished int64  // rows that wait again
	ahead       *batch // what comes next, nil where nothing waits
}

// mark writes down what was published and how far the broker is, as long as the lease is still ours. Where the lease is not ours any
// more, somebody else publishes these rows again, perhaps to a broker that has lost them meanwhile: then they must not be marked.
//
// Where others are onTheWay it renews the lease, and that is all. Otherwise it reads what waits besides these and the parked ones, and
// renews the lease where something does, or gives it up.
//
// Where the broker lost its tail, what was published shortly before this batch waits again; this batch was
// published after the loss.
func (r *Relay) mark(ctx context.Context, p *published, parked []int64, onTheWay bool) (marked, error) {
	limit := statementTimeout
	if p.lost {
		limit = republishTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var m marked
	ahead := &batch{until: time.Now().Add(r.cfg.LeaseTimeout), known: p.position}
	from, rows, ended := int64(0), 0, func() {}
	except := []int64{}
	if !onTheWay {
		from, ended = r.floor.look(r.cfg.Sweep)
		rows, except = r.cfg.BatchSize, idsFrom(from, p.ids, parked)
	}
	// That rows wait again must not be forgotten: what goes out next is not known to come after a loss.
	tx := transaction(!p.lost, len(except))
	if p.lost {
		tx.Queue(againSQL, relayName, r.holder, r.cfg.RepublishWindow.Seconds(), p.ids).Exec(func(tag pgconn.CommandTag) error {
			m.republished = tag.RowsAffected()
			return nil
		})
	}
	tx.Queue(markSQL, relayName, r.holder, p.position.Server, p.position.Last, r.cfg.LeaseTimeout.Seconds(), onTheWay,
		p.ids, p.entryIDs, except, rows, time.Since(p.began).Seconds(), from).Query(func(rows pgx.Rows) error {
		return ahead.read(rows, r.cfg.BatchSize, &m.held)
	})
	if err := r.pool.SendBatch(ctx, tx).Close(); err != nil {
		return m, fmt.Errorf("mark %d events as published: %w", len(p.ids), err)
	}
	ended()
	if len(ahead.ids) > 0 {
		m.ahead = ahead
	}
	return m, nil
}

var markSQL = `
	with ahead as (` + batchRows("true", "$12", "$9", "$10") + `), lease as (
		update outbox_relay
		set broker_server = $3::text, broker_last = $4::text,
		    expires_at = clock_timestamp() + make_interval(secs => case when $6::bool or exists (select from ahead) then $5::float8 else 0 end)
		where name = $1::text and holder = $2::text
		returning true as held
	), marked as (
		update outbox o set published_at = clock_timestamp() - make_interval(secs => $11::float8), entry_id = p.entry_id
		from unnest($7::bigint[], $8::text[]) as p (id, entry_id)
		where o.id = p.id and o.id = any($7::bigint[]) and exists (select from lease)
	)
	select coalesce(held, false), ` + rowColumns + `
	from (select) as one
	left join lease on true
	left join ahead o on held
	order by o.id`

// readAfter reads what comes after b, besides the rows in except. It does not look at the lease: what it reads goes out only where the mark
// at the same time found that it is still ours.
func (r *Relay) readAfter(ctx context.Context, b *batch, until time.Time, except ...[]int64) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	after := &batch{until: until}
	from, ended := r.floor.look(r.cfg.Sweep)
	if from > 0 {
		from = max(from, b.ids[len(b.ids)-1]-lateIDs)
	}
	ids := idsFrom(from, append(except, b.ids)...)
	tx := transaction(true, len(ids))
	tx.Queue(readSQL, from, ids, r.cfg.BatchSize).Query(func(rows pgx.Rows) error { return after.read(rows, r.cfg.BatchSize) })
	if err := r.pool.SendBatch(ctx, tx).Close(); err != nil {
		return nil, fmt.Errorf("read the outbox ahead: %w", err)
	}
	ended()
	return after, nil
}

var readSQL = `
	select ` + rowColumns + `
	from (` + batchRows("true", "$1", "$2", "$3") + `) o
	order by place`

// againSQL lets what was published shortly before the last mark wait again, where the lease is ours. A row that was marked by a clock that was
// ahead must not move the window beyond the others.
const againSQL = `
	update outbox set published_at = null, entry_id = null
	where exists (select from outbox_relay where name = $1::text and holder = $2::text for update)
	  and published_at > least((select max(published_at) from outbox), clock_timestamp()) - make_interval(secs => $3::float8)
	  and id <> all($4::bigint[])`

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
