package outbox

import (
	"context"
	"errors"
	"time"

	"example.com/orderfanout/broker"
)

const (
	// parkTime is how long a refused row is left alone. Short, since a broker that only stuttered may have refused it.
	parkTime = 10 * time.Second
	// maxRefused rows in a row without one that passes mean that the broker takes none.
	maxRefused = 10
)

// parked is a row that the broker refused while it took others.
type parked struct{ until, logged time.Time }

// publishSingly finds out who is to blame for a batch that was refused with cause. If the broker takes other rows, before
// and after, the refused ones are left alone for parkTime; they stay unpublished, and are seen in the log, in
// Stats.Parked and in Waiting. If it takes none, cause is returned, and the next pass begins behind the rows
// that this one tried, so that in the end a row that passes is found.
func (r *Relay) publishSingly(ctx context.Context, b *batch, cause error) (*published, error) {
	if _, err := r.ask(ctx, nil, b.known); err != nil {
		return nil, cause // nobody is there, no row is to blame
	}
	p := &published{position: b.known, began: time.Now()}
	var refused []int
	first := r.tried // perhaps beyond the batch: then this pass finds nothing, and the next one begins in front
	r.tried = 0
	noneToBlame := func(err error) bool { return errors.Is(err, broker.ErrFull) || ctx.Err() != nil }
	for i := first; i < len(b.ids); i++ {
		if len(p.ids) == 0 && i-first == maxRefused {
			r.tried = i
			break
		}
		err := r.publishOne(ctx, b, i, p)
		if noneToBlame(err) {
			break
		}
		if err != nil {
			refused = append(refused, i)
		}
	}
	if len(p.ids) == 0 {
		return nil, cause
	}
	for _, i := range refused {
		err := r.publishOne(ctx, b, i, p)
		if noneToBlame(err) {
			break
		}
		if err != nil {
			r.park(b.ids[i], b.events[i].ID, err)
		}
	}
	return p, nil // what was not tried, and what could not be parked, still waits
}

func (r *Relay) publishOne(ctx context.Context, b *batch, i int, p *published) error {
	receipt, err := r.ask(ctx, b.events[i:i+1], p.position)
	if err != nil {
		return err
	}
	p.ids = append(p.ids, b.ids[i])
	p.entryIDs = append(p.entryIDs, receipt.EntryIDs...)
	p.position = receipt.Position
	p.lost = p.lost || receipt.Lost
	delete(r.parked, b.ids[i])
	return nil
}

func (r *Relay) park(id int64, eventID string, err error) {
	now := time.Now()
	row := r.parked[id]
	row.until = now.Add(parkTime)
	if now.Sub(row.logged) >= logEvery {
		row.logged = now
		r.cfg.Logger.Error("outbox: the broker refuses an event and takes others: it waits, its neighbours pass",
			"event_id", eventID, "outbox_id", id, "error", err.Error())
	}
	r.parked[id] = row
}

// parkedIDs are the rows to leave alone now. Rows of which nothing was heard for long are forgotten.
func (r *Relay) parkedIDs() []int64 {
	ids := []int64{}
	now := time.Now()
	for id, row := range r.parked {
		if now.Before(row.until) {
			ids = append(ids, id)
		} else if now.Sub(row.until) > 10*logEvery {
			delete(r.parked, id)
		}
	}
	r.health.setParked(len(ids))
	return ids
}
