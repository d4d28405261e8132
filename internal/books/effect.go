package books

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// order is what the books need of an order.
type order struct {
	id, eventID string
	currency    string
	total       int64
	day         string    // of the order, in UTC
	made        time.Time // of the event's id; zero where that does not say
	credited    bool      // has a ledger row
	processed   bool      // has a processed row
	counted     bool      // is in a day's marker set
	mail        string    // the mailer's marker, "" for none
	row         bool      // its outbox row is still there
	entry       string    // the entry that the row names, "" while it is not published
	published   time.Time // when the row was published, 1970 while it is not
	only        string    // the one group that the row is for, "" for all
}

// item names the order, with a note.
func (o *order) item(note string) Item { return Item{OrderID: o.id, EventID: o.eventID, Note: note} }

// orderPage is how many orders are read at a time.
const orderPage = 5000

// eachPage calls do with all orders and what the three groups made of them, in the order of their ids. Orders that come
// meanwhile may be among them.
func (p *places) eachPage(ctx context.Context, do func([]order) error) error {
	for after := "00000000-0000-0000-0000-000000000000"; ; {
		page, err := p.orders(ctx, `where o.id > $1::uuid order by o.id limit `+strconv.Itoa(orderPage), after)
		if err != nil {
			return fmt.Errorf("read the orders after %s: %w", after, err)
		}
		if len(page) == 0 {
			return nil
		}
		after = page[len(page)-1].id
		if err := p.readMarkers(ctx, page); err != nil {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		if len(page) < orderPage {
			return nil
		}
	}
}

// again reads what the groups made of these orders once more.
func (p *places) again(ctx context.Context, orders map[string]order) (map[string]order, error) {
	out := make(map[string]order, len(orders))
	for ids := range chunks(orders, orderPage) {
		page, err := p.orders(ctx, `where o.event_id = any ($1::text[])`, ids)
		if err != nil {
			return nil, fmt.Errorf("read %d orders again: %w", len(ids), err)
		}
		if err := p.readMarkers(ctx, page); err != nil {
			return nil, err
		}
		for _, o := range page {
			out[o.eventID] = o
		}
	}
	return out, nil
}

// chunks yields the map's keys in slices of at most size.
func chunks[V any](m map[string]V, size int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		var keys []string
		for k := range m {
			keys = append(keys, k)
			if len(keys) == size {
				if !yield(keys) {
					return
				}
				keys = nil
			}
		}
		if len(keys) > 0 {
			yield(keys)
		}
	}
}

// orders reads the orders that which chooses, with bonus's rows, in one statement: marker and ledger are
// of one moment. "limit 1" keeps Postgres to the indexes; a plain join would read the whole tables for each page.
func (p *places) orders(ctx context.Context, which string, arg any) ([]order, error) {
	rows, err := p.db.Query(ctx, `
		select o.id::text, o.event_id, o.currency, o.total, to_char(o.created_at at time zone 'UTC', 'YYYY-MM-DD'),
		       l.event_id is not null, p.event_id is not null, b.id is not null, coalesce(b.entry_id, ''),
		       coalesce(b.published_at, 'epoch'), coalesce(b.only_group, '')
		from orders o
		left join lateral (select event_id from bonus_ledger where event_id = o.event_id limit 1) l on true
		left join lateral (select event_id from processed where consumer = 'bonus' and event_id = o.event_id limit 1) p on true
		left join lateral (select id, entry_id, published_at, only_group from outbox where event_id = o.event_id limit 1) b on true
		`+which, arg)
	if err != nil {
		return nil, err
	}
	var out []order
	var o order
	fields := []any{&o.id, &o.eventID, &o.currency, &o.total, &o.day, &o.credited, &o.processed, &o.row, &o.entry, &o.published, &o.only}
	_, err = pgx.ForEachRow(rows, fields, func() error {
		o.made, _ = made(o.eventID)
		out = append(out, o)
		return nil
	})
	return out, err
}

// markersAtOnce is how many markers one command asks for.
const markersAtOnce = 1000

// readMarkers reads the mailer's and analytics' markers of these orders, in one round trip.
func (p *places) readMarkers(ctx context.Context, orders []order) error {
	type lookup struct {
		index  []int
		keys   []string
		ids    []any
		mails  *redis.SliceCmd
		counts *redis.BoolSliceCmd
	}
	var lookups []*lookup
	days := make(map[string]*lookup)
	pipe := p.client.Pipeline()
	for from := 0; from < len(orders); from += markersAtOnce {
		l := &lookup{}
		for i := from; i < min(from+markersAtOnce, len(orders)); i++ {
			l.index, l.keys = append(l.index, i), append(l.keys, sentPrefix+orders[i].eventID)
		}
		l.mails = pipe.MGet(ctx, l.keys...)
		lookups = append(lookups, l)
	}
	for i, o := range orders {
		if o.made.IsZero() {
			continue // analytics counts UUIDv7 only
		}
		day := o.made.Format(time.DateOnly)
		l := days[day]
		if l == nil {
			l = &lookup{}
			days[day] = l
			lookups = append(lookups, l)
		}
		l.index, l.ids = append(l.index, i), append(l.ids, o.eventID)
	}
	for day, l := range days {
		l.counts = pipe.SMIsMember(ctx, countedPrefix+day, l.ids...)
	}
	if pipe.Len() == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read the markers of %d orders from %s: %w", len(orders), orders[0].id, err)
	}
	for _, l := range lookups {
		for k, i := range l.index {
			if l.mails != nil {
				orders[i].mail, _ = l.mails.Val()[k].(string)
			} else {
				orders[i].counted = l.counts.Val()[k]
			}
		}
	}
	return nil
}

const sent = "sent"

// sending reports whether the mail was begun and not finished.
func (o *order) sending() bool { return strings.HasPrefix(o.mail, "sending ") }

// done reports whether the group has done its work for the order, as far as its own mark says so.
func (o *order) done(group int) bool {
	switch Groups[group] {
	case mailer:
		return o.mail == sent
	case bonus:
		return o.credited
	default:
		return o.counted
	}
}
