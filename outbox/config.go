package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// RelayConfig says how a [Relay] works. Everything has a default.
type RelayConfig struct {
	// BatchSize is the most rows in one Publish. Default 500. A batch also ends at 4 MiB of data.
	BatchSize int
	// Sweep is the longest time between two looks at the table, less up to a quarter at random: how long a row waits when nobody
	// wakes the relay, and how soon a loss on the broker's side is noticed. A row that is committed hundreds of ids late may wait two of
	// them, or up to ten where a look at all rows takes that long. Default 1 s.
	Sweep time.Duration
	// PublishTimeout bounds one Publish. Default 5 s.
	PublishTimeout time.Duration
	// LeaseTimeout is how long a relay that died keeps the others from publishing. More than PublishTimeout. Default 10 s.
	LeaseTimeout time.Duration
	// RepublishWindow is how far back a broker can have lost what it had acknowledged. Default 10 s.
	RepublishWindow time.Duration
	// Retention is how long a published row is kept. Default 7 days. A republish reaches no further back.
	Retention time.Duration
	// Logger. Default slog.Default().
	Logger *slog.Logger
}

func (c RelayConfig) withDefaults() RelayConfig {
	or(&c.BatchSize, 500)
	or(&c.Sweep, time.Second)
	or(&c.PublishTimeout, 5*time.Second)
	or(&c.LeaseTimeout, 10*time.Second)
	or(&c.RepublishWindow, 10*time.Second)
	or(&c.Retention, 7*24*time.Hour)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func or[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

func (c RelayConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.BatchSize < 1 || c.BatchSize > 10_000 {
		bad("BatchSize %d is not between 1 and 10000", c.BatchSize)
	}
	if c.Sweep < time.Millisecond || c.PublishTimeout < time.Millisecond || c.RepublishWindow < 0 || c.Retention < time.Millisecond {
		bad("a time is negative or under 1ms")
	}
	// A relay must know that its Publish has ended before another may begin one.
	if c.LeaseTimeout <= c.PublishTimeout {
		bad("LeaseTimeout %s is not more than PublishTimeout %s", c.LeaseTimeout, c.PublishTimeout)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox relay config: %w", err)
	}
	return nil
}
