package outbox

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// health is what others may ask a relay while it works.
type health struct {
	mu       sync.Mutex
	lastTurn time.Time // when the database last answered
	database error     // its last answer, where that was an error
	broker   error
	stats    Stats
}

// Stats are a relay's own counts since its start.
type Stats struct {
	// Published counts the rows that this relay has published and marked.
	Published int64
	// Republished counts the rows that it put back because the broker had lost its tail.
	Republished int64
	// Parked is how many rows it leaves alone right now because the broker refuses them.
	Parked int
}

// Stats returns the relay's counts. It asks nobody.
func (r *Relay) Stats() Stats {
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	return r.health.stats
}

// Check returns nil while the relay works: it has had a turn, and the database answered lately (within LeaseTimeout and
// four statements, 30 s by default). A turn that finds the lease with another replica counts: that one works, or its lease
// ends. A broker that is away or full counts as well, since rows are safe where they are and another replica would fare
// no better: that is what [Relay.CheckBroker] is for. Check asks nobody and returns at once.
func (r *Relay) Check() error {
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	limit := r.cfg.LeaseTimeout + 4*statementTimeout
	switch silent := time.Since(r.health.lastTurn); {
	case r.health.lastTurn.IsZero() && r.health.database == nil:
		return errors.New("outbox relay: no turn yet")
	case r.health.lastTurn.IsZero():
		return fmt.Errorf("outbox relay: no turn yet: %w", r.health.database)
	case silent > limit && r.health.database != nil:
		return fmt.Errorf("outbox relay: no turn for %s: %w", silent.Round(time.Second), r.health.database)
	case silent > limit:
		return fmt.Errorf("outbox relay: no turn for %s", silent.Round(time.Second))
	}
	return nil
}

// CheckBroker returns nil where the broker answered when it was last asked, and what went wrong otherwise. A relay that has
// the lease, or has nothing to publish, asks at least once a Sweep. It is for an alarm, not for readiness: events wait in
// the database meanwhile. It asks nobody and returns at once.
func (r *Relay) CheckBroker() error {
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	return r.health.broker
}

func (r *Relay) databaseFailed(err error) next {
	r.floor.fall()
	r.health.mu.Lock()
	r.health.database = err
	r.health.mu.Unlock()
	return next{pause: r.database.failed(err), again: true}
}

func (r *Relay) databaseWorked() {
	r.database.worked()
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	r.health.lastTurn, r.health.database = time.Now(), nil
}

func (r *Relay) brokerFailed(err error) time.Duration {
	r.health.mu.Lock()
	r.health.broker = err
	r.health.mu.Unlock()
	return r.broker.failed(err)
}

func (r *Relay) brokerWorked() {
	r.broker.worked()
	r.heard = time.Now()
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	r.health.broker = nil
}

func (h *health) count(published int, republished int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Published += int64(published)
	h.stats.Republished += republished
}

func (h *health) setParked(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Parked = n
}
