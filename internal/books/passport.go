package books

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
)

// ErrNoOrder says that there is no order with that id.
var ErrNoOrder = errors.New("no such order")

// Passport is where one order has been.
type Passport struct {
	OrderID    string     `json:"order_id"`
	EventID    string     `json:"event_id"`
	CustomerID string     `json:"customer_id"`
	Currency   string     `json:"currency"`
	Total      int64      `json:"total"`
	AcceptedAt time.Time  `json:"accepted_at"`
	Outbox     *OutboxRow `json:"outbox"` // nil: removed after OUTBOX_RETENTION
	// TailLost: the row is published and will be once more, as in Outbox of a Report. A group that would have lost the
	// order has it in the outbox.
	TailLost bool       `json:"tail_lost,omitempty"`
	Entries  []Entry    `json:"entries"` // that the stream still has, oldest first
	Groups   []Standing `json:"groups"`  // in the order of Groups
}

// OutboxRow is an order's row in the outbox.
type OutboxRow struct {
	ID          int64      `json:"id"`
	CreatedAt   time.Time  `json:"created_at"`
	PublishedAt *time.Time `json:"published_at"`
	EntryID     string     `json:"entry_id"`
}

// Entry is an entry of the stream with the order's event.
type Entry struct {
	ID        string    `json:"id"`
	AddedAt   time.Time `json:"added_at"`
	OnlyGroup string    `json:"only_group,omitempty"`
}

// Standing is where an order stands for a group.
type Standing struct {
	Group string `json:"group"`
	// State is done, outbox, unread, pending, dead, in doubt, unknown or lost, with the meaning that they have in Group.
	State string `json:"state"`
	// Effect is what the group did, At when, where that is known: only the ledger keeps a time.
	Effect string     `json:"effect,omitempty"`
	Twice  bool       `json:"done_twice,omitempty"` // more than one ledger row
	At     *time.Time `json:"at,omitempty"`
	// Pending is an entry that the group has and has not acknowledged; also one that is done.
	Pending *Pending `json:"pending,omitempty"`
	Unread  int      `json:"unread_entries"`
	// Repeats are acknowledged entries beyond the first, as in Group.
	Repeats int `json:"repeats_absorbed"`
	// Dead is its dead letter.
	Dead *redisstream.DeadLetter `json:"dead_letter,omitempty"`
}

// Settled reports that the group has nothing more to do for the order.
func (s Standing) Settled() bool {
	return (s.State == stateDone || s.State == stateUnknown) && s.Pending == nil && s.Unread == 0
}

// Lost reports that the group has lost the order, as far as one look can tell: see [Watch.Look].
func (s Standing) Lost() bool { return s.State == stateLost }

const (
	stateDone    = "done"
	stateOutbox  = "outbox"
	stateUnread  = "unread"
	statePending = "pending"
	stateDead    = "dead"
	stateDoubt   = "in doubt"
	stateUnknown = "unknown"
	stateLost    = "lost"
)

// ReadPassport returns an order's passport, or [ErrNoOrder].
func (c Config) ReadPassport(ctx context.Context, db *pgxpool.Pool, client *redis.Client, orderID string) (*Passport, error) {
	w := c.NewWatch(db, client, orderID)
	p, err := w.Look(ctx)
	for range leastPasses {
		if err != nil || !p.Lost() {
			break
		}
		select { // it may have moved against the flow just now
		case <-time.After(passPause):
		case <-ctx.Done():
		}
		p, err = w.Look(ctx)
	}
	return p, err
}

// Lost reports that some group has lost the order, as far as one look can tell: see [Watch.Look].
func (p *Passport) Lost() bool {
	for _, s := range p.Groups {
		if s.Lost() {
			return true
		}
	}
	return false
}

// Verdict sums the passport up.
func (p *Passport) Verdict() Verdict {
	waiting := false
	for _, s := range p.Groups {
		if s.State == stateLost || s.Twice {
			return Wrong
		}
		waiting = waiting || !s.Settled()
	}
	if waiting {
		return Waiting
	}
	return Balanced
}
