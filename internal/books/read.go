package books

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// errSetBack says that there are no books of one Redis to read.
var errSetBack = errors.New("read the books: each time Redis was restarted or set back meanwhile; try again")

const (
	// mostReadings bounds the readings that are begun again because Redis was restarted or set back meanwhile.
	mostReadings = 3
	// leastPasses: suspects are looked at once more at least twice before they are called lost.
	leastPasses = 2
	// mostPasses bounds the looking where something clears a suspect each time.
	mostPasses = 10
	// passPause lets an event come to rest that was on its way against the flow.
	passPause = 200 * time.Millisecond
)

// reading is a Read that is under way.
type reading struct {
	*places
	report   *Report
	groups   [3]*Group
	suspects [3]map[string]order // by event id: not done, and met nowhere
	sums     sumsCheck
	tail     tail
}

// Read reads the books and judges them. db and client need the rights of the role and the user fanout. It takes some
// twenty seconds a million orders, and holds up neither server. Where Redis is restarted or set back meanwhile it begins
// again.
func (c Config) Read(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (*Report, error) {
	c = c.withDefaults()
	for range mostReadings {
		r, err := c.read(ctx, db, client)
		if err != nil {
			return nil, err
		}
		end, err := c.readTail(ctx, db, client)
		if err != nil {
			return nil, err
		}
		if end.follows(r.tail) {
			return r.report, nil
		}
	}
	return nil, errSetBack
}

// read reads the books once. That is of use if Redis was the same from the beginning to the end, and lost nothing.
func (c Config) read(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (*reading, error) {
	began := time.Now()
	r := &reading{
		places: &places{cfg: c, db: db, client: client, events: make(map[string]trace)},
		report: &Report{At: began.UTC(), Groups: make([]Group, len(Groups))},
	}
	for i, name := range Groups {
		r.groups[i] = &r.report.Groups[i]
		r.groups[i].Name, r.groups[i].Oldest = name, []Pending{}
		r.suspects[i] = make(map[string]order)
	}
	for _, step := range []func(context.Context) error{
		r.readTail, r.readSumsBefore, r.places.read, r.readOrders, r.clearSuspects, r.readSumsAfter,
		r.judgeMail, r.judgeLedger, r.judgeSums,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	for i, g := range r.groups {
		g.Accepted = r.report.Accepted
		if r.places.groups[i].missing {
			g.Notes = append(g.Notes, "Redis has no such group; its service makes it when it starts, and reads the stream from the front")
		}
	}
	r.report.Result = r.report.Verdict()
	r.report.Seconds = time.Since(began).Seconds()
	return r, nil
}

// readOrders puts each order where it belongs, for each group.
func (r *reading) readOrders(ctx context.Context) error {
	r.report.Outbox, r.report.Entries = r.outbox, r.info.length
	r.report.Outbox.TailLost = r.tail.lost
	for i, g := range r.groups {
		p := &r.places.groups[i]
		g.Missing, g.DeadLetters, g.DeadForeign = p.missing, p.letters, p.letters
		g.Waiting.UnreadEntries, g.Waiting.PendingEntries = p.unread, int64(len(p.pending))
		g.Oldest = append(g.Oldest, p.oldest...)
	}
	return r.eachPage(ctx, func(page []order) error {
		for _, o := range page {
			r.report.Accepted++
			met := r.events[o.eventID]
			for i, g := range r.groups {
				g.DeadForeign -= int64(met.letters[i])
				g.Repeats += max(0, int64(met.acked[i])-1)
				r.place(i, o, met.at[i])
			}
		}
		return nil
	})
}

// place counts an order where it belongs, or makes it a suspect. It reports whether it counted it.
func (r *reading) place(group int, o order, at place) bool {
	g := r.groups[group]
	switch {
	case o.done(group):
		g.Done++
		if Groups[group] == analytics {
			r.sums.add(o)
		}
	case Groups[group] == bonus && o.processed:
		// Marker and ledger row are written by one statement. With the marker alone it will never be credited.
		g.Lost++
		add(&g.LostIDs, o.item("marked in processed, not in the ledger"))
	case at == inOutbox:
		g.Waiting.Outbox++
	case at == unread:
		g.Waiting.Unread++
	case at == pending:
		g.Waiting.Pending++
	case at == dead:
		g.Dead++
	case r.tail.again(o, group):
		g.Waiting.Outbox++
	case Groups[group] == mailer && o.mail == "" && (r.sums.before.mailForgotten(o) || at == nowhere && r.untold(o)):
		g.Unknown++
	case Groups[group] == analytics && r.sums.forgotten(o):
		r.sums.addForgotten(o)
	default:
		r.suspects[group][o.eventID] = o
		return false
	}
	if (at > acked || r.tail.again(o, group)) && Groups[group] == analytics && !o.counted && r.sums.forgotten(o) {
		r.sums.addMaybe(o)
	}
	return true
}

// clearSuspects looks for the suspects once more, along the flow, until a pass clears none.
func (r *reading) clearSuspects(ctx context.Context) error {
	for pass := 1; pass <= mostPasses; pass++ {
		left := make(map[string]order)
		for _, s := range r.suspects {
			for id, o := range s {
				left[id] = o
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(passPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.places.read(ctx); err != nil {
			return err
		}
		now, err := r.again(ctx, left)
		if err != nil {
			return err
		}
		cleared := false
		for i, s := range r.suspects {
			for id := range s {
				o, ok := now[id]
				if !ok {
					delete(s, id) // the order was deleted
					continue
				}
				if r.place(i, o, r.events[id].at[i]) {
					delete(s, id)
					cleared = true
				}
			}
		}
		if !cleared && pass >= leastPasses {
			return nil
		}
	}
	return nil
}
