package books

import "time"

// Verdict sums a [Report] up.
type Verdict string

const (
	// Balanced: each accepted order is done once in each group, as far as it can be known, and nothing is under way.
	Balanced Verdict = "balanced"
	// Waiting: nothing is wrong, but something is not done yet: it is under way, or is a dead letter.
	Waiting Verdict = "waiting"
	// Wrong: something is lost, done twice, or done without an order, or sums do not agree.
	Wrong Verdict = "wrong"
)

// sampleSize is how many ids a sample has at most.
const sampleSize = 10

// Report is what the books say.
type Report struct {
	At       time.Time `json:"at"`
	Result   Verdict   `json:"verdict"`
	Accepted int64     `json:"accepted"` // orders
	Outbox   Outbox    `json:"outbox"`
	Entries  int64     `json:"stream_entries"`
	Groups   []Group   `json:"groups"` // in the order of Groups
	Seconds  float64   `json:"seconds"`
}

// Outbox is what waits to be published, also events that are no orders.
type Outbox struct {
	Unpublished   int64   `json:"unpublished"`
	OldestSeconds float64 `json:"oldest_seconds"`
	// Overtaken are those older than a minute while later rows were published: as a rule the broker refuses them.
	Overtaken int64 `json:"overtaken"`
	// TailLost: Redis is not where the relay left it, so it may have lost what came last, and the relay has not noticed
	// yet. It will publish the rows of the last REPUBLISH_WINDOW again; of those, orders that are nowhere wait in the outbox.
	TailLost bool `json:"tail_lost,omitempty"`
}

// Group is one group's account. Accepted = Done + Backlog's three + Dead + InDoubt + Unknown + Lost.
type Group struct {
	Name string `json:"name"`
	// Missing: Redis has no such group. All entries are unread then.
	Missing  bool  `json:"missing,omitempty"`
	Accepted int64 `json:"accepted"`
	Done     int64 `json:"done"`
	// Waiting are the orders that are under way.
	Waiting Backlog `json:"waiting"`
	// Oldest are the oldest pending entries, at most five.
	Oldest []Pending `json:"oldest_pending"`
	// Dead are orders whose work failed for good and that have a dead letter.
	Dead int64 `json:"dead"`
	// DeadLetters are all dead letters of the group, also those of entries that are nobody's order (DeadForeign) and of
	// orders that are done all the same.
	DeadLetters int64 `json:"dead_letters"`
	DeadForeign int64 `json:"dead_foreign"`
	// InDoubt: the mailer's marker says "sending", and no entry is under way that could go on. It ends by itself.
	InDoubt       int64  `json:"in_doubt"`
	InDoubtSample []Item `json:"in_doubt_sample,omitempty"`
	// Unknown: it was done or not, and nothing that could tell is left.
	Unknown int64  `json:"unknown"`
	Lost    int64  `json:"lost"`
	LostIDs []Item `json:"lost_sample,omitempty"`
	// Twice is how much more was done than accepted: orders credited more than once, or counted more than once.
	Twice    int64  `json:"done_twice"`
	TwiceIDs []Item `json:"done_twice_sample,omitempty"`
	// WithoutOrder is what was done for an event whose order does not exist.
	WithoutOrder    int64  `json:"without_order"`
	WithoutOrderIDs []Item `json:"without_order_sample,omitempty"`
	// Differences are amounts that do not agree, DifferenceCount how many there are; at most ten are listed.
	DifferenceCount int64        `json:"differences_count"`
	Differences     []Difference `json:"differences,omitempty"`
	// Repeats are the entries that the group has acknowledged beyond the first of each order, as far as the stream still
	// has them: what the relay or a republish added once more, and redrives. Repeated deliveries of one entry leave no
	// trace and are not in it, nor are entries that were for another group only.
	Repeats int64    `json:"repeats_absorbed"`
	Notes   []string `json:"notes,omitempty"`
}

// Backlog is where orders wait, and what the stream has for the group in all: repeats and strangers too.
type Backlog struct {
	Outbox         int64 `json:"outbox"`
	Unread         int64 `json:"unread"`
	Pending        int64 `json:"pending"`
	UnreadEntries  int64 `json:"unread_entries"`
	PendingEntries int64 `json:"pending_entries"`
}

// Orders is how many orders wait.
func (b Backlog) Orders() int64 { return b.Outbox + b.Unread + b.Pending }

// Pending is an entry that was given to a consumer and is not acknowledged.
type Pending struct {
	EntryID     string     `json:"entry_id"`
	EventID     string     `json:"event_id"` // "" where the entry's body is gone
	Owner       string     `json:"owner"`
	Deliveries  int64      `json:"deliveries"`
	Failures    int64      `json:"failures"`
	NextTry     *time.Time `json:"next_try,omitempty"`
	AgeSeconds  float64    `json:"age_seconds"`  // since it was added to the stream
	IdleSeconds float64    `json:"idle_seconds"` // since its owner was last heard of
}

// Item names an order and its event, as far as they are known.
type Item struct {
	OrderID string `json:"order_id,omitempty"`
	EventID string `json:"event_id,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Difference is an amount that is not what the orders add up to.
type Difference struct {
	What string `json:"what"`
	Want int64  `json:"want"`
	Got  int64  `json:"got"`
}

// Verdict sums the report up.
func (r *Report) Verdict() Verdict {
	waiting := r.Outbox.Unpublished > 0
	for _, g := range r.Groups {
		if g.Lost > 0 || g.Twice > 0 || g.WithoutOrder > 0 || g.DifferenceCount > 0 {
			return Wrong
		}
		w := g.Waiting
		if w.Orders() > 0 || w.UnreadEntries > 0 || w.PendingEntries > 0 || g.Dead > 0 || g.InDoubt > 0 {
			waiting = true
		}
	}
	if waiting {
		return Waiting
	}
	return Balanced
}

// add puts an item into a sample while there is room.
func add(sample *[]Item, item Item) {
	if len(*sample) < sampleSize {
		*sample = append(*sample, item)
	}
}

func (g *Group) differ(what string, want, got int64) {
	g.DifferenceCount++
	if len(g.Differences) < sampleSize {
		g.Differences = append(g.Differences, Difference{what, want, got})
	}
}
