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
	if !r.rowsFault(ctx, cause, b.known) {
		return nil, cause
	}
	p := &published{position: b.known, began: time.Now()}
	var refused []int
	streak := 0      // refused ones since the last that passed
	first := r.tried // perhaps beyond the batch: then this pass finds nothing, and the next one begins in front
	r.tried = 0
	for i := first; i < len(b.ids); i++ {
		if streak == maxRefused {
			r.tried = i
			refused = refused[:len(refused)-streak] // of these it may be the broker's fault
			break
		}
		err := r.publishOne(ctx, b, i, p)
		if err == nil {
			streak = 0
			continue
		}
		if !r.rowsFault(ctx, err, p.position) {
			break
		}
		streak++
		refused = append(refused, i)
	}
	if len(p.ids) == 0 {
		return nil, cause
	}
	r.tried = 0 // what is left is in front of the next batch
	for _, i := range refused {
		err := r.publishOne(ctx, b, i, p)
		if err == nil {
			continue
		}
		if !r.rowsFault(ctx, err, p.position) {
			break
		}
		r.park(b.ids[i], b.events[i].ID, err)
	}
	return p, nil // what was not tried, and what could not be parked, still waits
}

// rowsFault reports whether err may be the row's fault: the broker has room, and answers.
func (r *Relay) rowsFault(ctx context.Context, err error, known broker.Position) bool {
	if errors.Is(err, broker.ErrFull) || ctx.Err() != nil {
		return false
	}
	_, err = r.ask(ctx, nil, known)
	return err == nil
}

func (r *Relay) publishOne(ctx context.Context, b *batch, i int, p *published) error {
	receipt, err := r.ask(ctx, b.events[i:i+1], p.position)
	if err != nil {
		return err
	}
	if receipt.Lost {
		// What this pass has published may be lost, as what went out before it: it waits on.
		p.lost, p.ids, p.entryIDs = true, nil, nil
	}
	p.ids = append(p.ids, b.ids[i])
	p.entryIDs = append(p.entryIDs, receipt.EntryIDs...)
	p.position = receipt.Position
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
