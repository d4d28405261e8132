package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
)

// refusedPause is how long a relay leaves the lease alone after another had it. Wakes that come meanwhile count as one, so it also bounds
// how often this process sends a NOTIFY.
const refusedPause = 20 * time.Millisecond

// Relay publishes what waits in the outbox. Every replica of a service may run one.
type Relay struct {
	cfg       RelayConfig
	pool      *pgxpool.Pool
	publisher broker.Publisher
	holder    string        // this relay, in the lease row
	wake      chan struct{} // a row was committed in this process
	notice    chan struct{} // another replica says that rows wait

	// Used by the goroutine that takes the turns only.
	database, broker calm
	heard            time.Time        // when the broker last answered
	force            bool             // take the lease even where no row waits: the broker lost its tail
	ahead            *batch           // read already: the next to be published
	unmarked         *published       // acknowledged by the broker, but not yet written down
	parked           map[int64]parked // rows that the broker refuses, by id
	floor            floor            // where a look at the outbox begins
	tried            int              // where the next single pass begins in its batch

	health health
}

// NewRelay returns a relay that publishes through publisher. Pool and publisher stay the caller's. Of the pool's connections Run takes
// three at most, for a moment each, and one is enough. It opens one more with the pool's settings, BeforeConnect among them, for LISTEN.
func NewRelay(pool *pgxpool.Pool, publisher broker.Publisher, cfg RelayConfig) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only for people who read the table
	return &Relay{
		cfg:       cfg,
		pool:      pool,
		publisher: publisher,
		holder:    host + "~" + rand.Text(),
		wake:      make(chan struct{}, 1),
		notice:    make(chan struct{}, 1),
		database:  calm{log: cfg.Logger, what: "outbox: database"},
		broker:    calm{log: cfg.Logger, what: "outbox: publish"},
		parked:    make(map[int64]parked),
	}, nil
}

// Wake says that rows were committed, so that they go out now rather than with the next sweep. It never waits; any
// number of calls in a short time are one.
func (r *Relay) Wake() { signal(r.wake) }

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run publishes, and deletes what is older than Retention, until ctx is done. Then it finishes the turn that it is
// in, takes one more where it was woken since, gives the lease up and returns nil: twice PublishTimeout and a few statements
// at most. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { r.listen(ctx) })
	wg.Go(func() { r.deleteOld(ctx) })
	r.takeTurns(ctx)
	last := context.WithoutCancel(ctx)
	select {
	case <-r.wake: // for a row that was committed before the end, and that nobody else may come for
		r.turn(last, true)
	default:
	}
	r.stop(last)
	wg.Wait()
	return nil
}

func (r *Relay) takeTurns(ctx context.Context) {
	own := false
	for {
		for again := true; again; {
			// A batch that is on its way is seen through: cut off, it might go out twice.
			next := r.turn(context.WithoutCancel(ctx), own)
			if ctx.Err() != nil || !sleep(ctx, next.pause) {
				return
			}
			again = next.again
		}
		sweep := time.NewTimer(lessUpTo(r.cfg.Sweep, 4))
		select {
		case <-r.wake:
			own = true
		case <-r.notice:
			own = false
		case <-sweep.C:
			own = false
		case <-ctx.Done():
			own = false
		}
		sweep.Stop()
		if ctx.Err() != nil {
			if own {
				signal(r.wake) // for the last turn
			}
			return
		}
	}
}

// stop writes down what is not yet, and lets the others begin at once.
func (r *Relay) stop(ctx context.Context) {
	if r.unmarked != nil {
		if _, err := r.mark(ctx, r.unmarked, r.parkedIDs(), false); err != nil {
			r.cfg.Logger.Warn("outbox: events will be published again: they could not be marked",
				"events", len(r.unmarked.ids), "error", err.Error())
		}
	}
	if err := r.giveUp(ctx); err != nil {
		r.cfg.Logger.Info(fmt.Sprintf("outbox: the lease ends by itself in at most %s", r.cfg.LeaseTimeout), "error", err.Error())
	}
}
