package books

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
)

// Watch looks at one order again and again, and at the stream and the dead letters only from where it stopped.
type Watch struct {
	places
	orderID string
	walked  string
	entries []Entry
	letters [3]string // the order's newest dead letter
	dead    [3]string // the last dead letter that was looked at
}

// NewWatch returns a watch on an order; db and client stay the caller's.
func (c Config) NewWatch(db *pgxpool.Pool, client *redis.Client, orderID string) *Watch {
	return &Watch{places: places{cfg: c.withDefaults(), db: db, client: client, events: map[string]trace{}}, orderID: orderID}
}

// Look returns the passport as it is now. In a single look an order on its way may seem to be lost; see [ReadPassport].
func (w *Watch) Look(ctx context.Context) (*Passport, error) {
	p := &Passport{}
	if err := w.readOrder(ctx, p); err != nil {
		return nil, err
	}
	if err := w.readInfo(ctx); err != nil {
		return nil, err
	}
	groups, err := w.client.XInfoGroups(ctx, stream).Result()
	if err != nil && !isNoKey(err) {
		return nil, fmt.Errorf("read the groups of %s: %w", stream, err)
	}
	if err := w.findEntries(ctx, p); err != nil {
		return nil, err
	}
	for i, name := range Groups {
		delivered := entryID{}
		for _, g := range groups {
			if g.Name == name {
				delivered = parseEntryID(g.LastDeliveredID)
			}
		}
		s, at, err := w.standing(ctx, name, delivered)
		if err == nil {
			s.Dead, err = w.deadLetter(ctx, i, p.EventID)
		}
		if err != nil {
			return nil, fmt.Errorf("read where order %s stands for %s: %w", w.orderID, name, err)
		}
		if s.Dead != nil {
			at = max(at, dead)
		}
		if p.Outbox != nil && p.Outbox.PublishedAt == nil {
			at = max(at, inOutbox)
		}
		s.State = [...]string{stateLost, stateLost, stateDead, stateOutbox, stateUnread, statePending}[at]
		p.Groups = append(p.Groups, s)
	}
	return p, w.readEffects(ctx, p)
}

func (w *Watch) readOrder(ctx context.Context, p *Passport) error {
	var uid pgtype.UUID
	if err := uid.Scan(w.orderID); err != nil {
		return fmt.Errorf("%w: %.64q is not a UUID", ErrNoOrder, w.orderID)
	}
	var row OutboxRow
	var id *int64
	var created *time.Time
	err := w.db.QueryRow(ctx, `
		select o.id::text, o.event_id, o.customer_id, o.currency, o.total, o.created_at,
		       b.id, b.created_at, b.published_at, coalesce(b.entry_id, '')
		from orders o
		left join outbox b on b.event_id = o.event_id
		where o.id = $1::uuid`, uid).Scan(
		&p.OrderID, &p.EventID, &p.CustomerID, &p.Currency, &p.Total, &p.AcceptedAt,
		&id, &created, &row.PublishedAt, &row.EntryID)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %s", ErrNoOrder, w.orderID)
	}
	if err != nil {
		return fmt.Errorf("read order %s: %w", w.orderID, err)
	}
	p.AcceptedAt = p.AcceptedAt.UTC()
	if id != nil {
		row.ID, row.CreatedAt = *id, created.UTC()
		if row.PublishedAt != nil {
			*row.PublishedAt = row.PublishedAt.UTC()
		}
		p.Outbox = &row
	}
	return nil
}

// findScript finds an event's entries.
//
//	KEYS  stream
//	ARGV  start of the range, most entries to look at, event id
//	reply {the last id that it looked at or "" where there was none, {entry id, the group that it is for or "", …}}
var findScript = redis.NewScript(`
local last, found = '', {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  local id, only, fields = '', '', entry[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then id = fields[i + 1] end
    if fields[i] == 'onlygroup' then only = fields[i + 1] end
  end
  last = entry[1]
  if id == ARGV[3] then
    found[#found + 1] = last
    found[#found + 1] = only
  end
end
return {last, found}`)

// find calls do with each entry of the event at key that comes after the id last, and returns the last id that it looked at.
func (w *Watch) find(ctx context.Context, key, last, eventID string, do func(id, only string)) (string, error) {
	if t, ok := made(eventID); ok && last == "" {
		last = fmt.Sprint(max(0, t.Add(-clockMargin).UnixMilli())) // an entry is younger than the id in it
	}
	for {
		start := "-"
		if last != "" {
			start = "(" + last
		}
		reply, err := findScript.Run(ctx, w.client, []string{key}, start, walkStep, eventID).Slice()
		if err != nil {
			return last, fmt.Errorf("look for event %s in %s: %w", eventID, key, err)
		}
		end, _ := reply[0].(string)
		if end == "" {
			return last, nil
		}
		last = end
		found, _ := reply[1].([]any)
		for i := 0; i+1 < len(found); i += 2 {
			id, _ := found[i].(string)
			only, _ := found[i+1].(string)
			do(id, only)
		}
	}
}

func (w *Watch) findEntries(ctx context.Context, p *Passport) (err error) {
	w.walked, err = w.find(ctx, stream, w.walked, p.EventID, func(id, only string) {
		w.entries = append(w.entries, Entry{id, parseEntryID(id).time().UTC(), only})
	})
	p.Entries = append([]Entry{}, w.entries...)
	return err
}

// standing says how far the group is with the order's entries.
func (w *Watch) standing(ctx context.Context, group string, delivered entryID) (s Standing, at place, err error) {
	s.Group = group
	done := 0
	for _, e := range w.entries {
		if e.OnlyGroup != "" && e.OnlyGroup != group {
			continue
		}
		if parseEntryID(e.ID).after(delivered) {
			s.Unread++
			at = max(at, unread)
			continue
		}
		list, err := w.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: stream, Group: group, Start: e.ID, End: e.ID, Count: 1}).Result()
		if err != nil {
			return s, at, err
		}
		if len(list) == 0 {
			done++
			at = max(at, acked)
			continue
		}
		at = max(at, pending)
		if s.Pending == nil {
			s.Pending = &Pending{EntryID: e.ID, Owner: list[0].Consumer, Deliveries: list[0].RetryCount,
				IdleSeconds: list[0].Idle.Seconds(), AgeSeconds: max(0, time.Since(e.AddedAt).Seconds())}
			if err := s.Pending.readFailures(ctx, w.client, group); err != nil {
				return s, at, err
			}
		}
	}
	s.Repeats = max(0, done-1)
	return s, at, nil
}

// deadLetter returns the order's newest dead letter of the group, if it has one.
func (w *Watch) deadLetter(ctx context.Context, group int, eventID string) (letter *redisstream.DeadLetter, err error) {
	name := Groups[group]
	w.dead[group], err = w.find(ctx, redisstream.DeadKey(stream, name), w.dead[group], eventID, func(id, _ string) {
		w.letters[group] = id
	})
	if err != nil || w.letters[group] == "" {
		return nil, err
	}
	l, err := redisstream.NewDeadLetters(w.client, stream, name).Get(ctx, w.letters[group])
	if errors.Is(err, redisstream.ErrNoDeadLetter) {
		return nil, nil // redriven or thrown away
	}
	return &l, err
}

// readEffects says what the groups did.
func (w *Watch) readEffects(ctx context.Context, p *Passport) error {
	found, err := w.again(ctx, map[string]order{p.EventID: {}})
	if err != nil {
		return err
	}
	o, ok := found[p.EventID]
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoOrder, w.orderID)
	}
	var points *int64
	var rows int
	var at *time.Time
	err = w.db.QueryRow(ctx, `
		select sum(points)::bigint, count(*), min(created_at) from bonus_ledger where order_id = $1::uuid`, p.OrderID).Scan(&points, &rows, &at)
	if err != nil {
		return fmt.Errorf("read the credits of order %s: %w", p.OrderID, err)
	}
	for i := range p.Groups {
		s := &p.Groups[i]
		switch {
		case o.done(i):
			s.State = stateDone
			s.Effect = map[string]string{mailer: "mailed", analytics: "counted"}[s.Group]
		case s.Group == bonus && o.processed:
			s.State = stateLost // see place
		}
		if s.Group == bonus && rows > 0 {
			t := at.UTC()
			s.At = &t
			s.Effect = fmt.Sprintf("credited %d points", *points)
			if rows > 1 {
				s.Twice = true
				s.Effect += fmt.Sprintf(" in %d ledger rows: TWICE", rows)
			}
		}
	}
	if p.Lost() {
		return w.judge(ctx, p, o)
	}
	return nil
}

// judge says of each group that has done nothing, and where the order is nowhere, what that means.
func (w *Watch) judge(ctx context.Context, p *Passport, o order) error {
	sums, err := readSums(ctx, w.client, w.cfg)
	if err != nil {
		return err
	}
	tail, err := w.cfg.readTail(ctx, w.db, w.client)
	if err != nil {
		return err
	}
	for i := range p.Groups {
		s := &p.Groups[i]
		switch {
		case s.State != stateLost:
		case s.Group == bonus && o.processed:
		case tail.again(o, i):
			s.State, p.TailLost = stateOutbox, true
		case s.Group == mailer && o.mail != "":
			s.State = stateDoubt
		case s.Group == mailer && (sums.mailForgotten(o) || w.untoldOne(p, o)):
			s.State = stateUnknown
		case s.Group == analytics && sums.forgotten(o):
			s.State = stateUnknown
		}
	}
	return nil
}

// untoldOne is untold, for an order whose entry may be known.
func (w *Watch) untoldOne(p *Passport, o order) bool {
	if len(p.Entries) > 0 {
		return false
	}
	return w.untold(o)
}
