package redisstream

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"example.com/orderfanout/broker"
)

// MaxHeld is how many entries one consumer holds at most (queued, running, waiting for a retry). At the limit it
// reads no more until some are done.
const MaxHeld = 10_000

// longest is the longest time in a Config: a week, so that no sum of them is out of range.
const longest = 7 * 24 * time.Hour

// Config says what a [Consumer] reads and how. Stream, Group and exactly one of Handle and HandleBatch are required;
// the rest has defaults.
type Config struct {
	// Stream is the key of the stream.
	Stream string
	// Group is the consumer group. It is made at the start of the stream where it is missing.
	Group string
	// Name is this consumer's name in the group; keep it the same over restarts, so that the consumer takes up its
	// own pending entries at once. Default: the host name. Where a live consumer has it already, "name~random" is used; so give consumers
	// of one group name on several streams of one server names of their own.
	Name string

	// Handle does the work, one entry at a time, in up to Concurrency goroutines.
	Handle broker.Handler
	// HandleBatch does the work for up to BatchSize entries at once.
	HandleBatch broker.BatchHandler
	// Types are the event types that the handler takes; entries of another type are acknowledged unseen.
	// Default: all types.
	Types []string

	// BatchSize is the most entries in one HandleBatch. Default 100. Reading never waits to fill it.
	BatchSize int
	// Concurrency is how many handlers run at once. Default 16 for Handle, 1 for HandleBatch.
	Concurrency int

	// ClaimIdle is how long an entry's owner may be silent before another consumer takes the entry over; a live
	// owner renews it several times within this time. Default 5 s, at least 100 ms.
	ClaimIdle time.Duration
	// HandlerTimeout bounds one run of a handler: then its context is cancelled and the run counts as failed.
	// Default 30 s.
	HandlerTimeout time.Duration
	// MaxAttempts is how many failures send an entry to the dead letters. Default 5.
	MaxAttempts int
	// MaxDeliveries is how often an entry may be delivered because the worker that had it was lost, the first delivery included,
	// before it goes to the dead letters. Failures of the handler do not count here. Default 20.
	MaxDeliveries int
	// RetryMin and RetryMax bound the wait before a retry: RetryMin after the first failure, doubled each time, up to
	// RetryMax, each less up to half at random. Defaults 500 ms and 1 min.
	RetryMin, RetryMax time.Duration
	// ConsumerExpiry is how long a consumer with nothing pending may be idle before it is removed from the group.
	// Default 1 h.
	ConsumerExpiry time.Duration

	// HandlerDelay is a pause before each run of the handler, within HandlerTimeout, so that people can watch a worker
	// being killed before its work. Default 0.
	HandlerDelay time.Duration
	// AckDelay is a pause between the work and its acknowledgement, so that people can watch a worker being killed
	// there. Default 0. A consumer that drains skips it.
	AckDelay time.Duration

	// Logger gets a line an outcome. Default slog.Default(). What go-redis itself has to say, for instance each time it cannot connect, goes to
	// standard error, unless it is told otherwise: https://pkg.go.dev/github.com/redis/go-redis/v9#SetLogger.
	Logger *slog.Logger
	// Observe, where set, is called with each outcome and the time that the handler took (zero where none ran). It is
	// called from many goroutines and must be quick.
	Observe func(d *broker.Delivery, outcome broker.Outcome, took time.Duration)
}

// LongestBackoff is the longest time that an entry can spend waiting for its retries.
func (c Config) LongestBackoff() time.Duration {
	c = c.withDefaults()
	var sum time.Duration
	for failures := 1; failures < c.MaxAttempts; failures++ {
		sum += c.backoff(failures)
	}
	return sum
}

// backoff is the wait after that many failures, before jitter.
func (c Config) backoff(failures int) time.Duration {
	wait := c.RetryMin
	for i := 1; i < failures && wait < c.RetryMax; i++ {
		wait *= 2
	}
	return min(wait, c.RetryMax)
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	or(&c.BatchSize, 100)
	if c.HandleBatch != nil {
		or(&c.Concurrency, 1)
	}
	or(&c.Concurrency, 16)
	or(&c.ClaimIdle, 5*time.Second)
	or(&c.HandlerTimeout, 30*time.Second)
	or(&c.MaxAttempts, 5)
	or(&c.MaxDeliveries, 20)
	or(&c.RetryMin, 500*time.Millisecond)
	or(&c.RetryMax, time.Minute)
	or(&c.ConsumerExpiry, time.Hour)
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

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Stream == "" {
		bad("Stream is empty")
	}
	if c.Group == "" {
		bad("Group is empty")
	}
	// CLIENT SETNAME takes no spaces and no control characters (https://redis.io/docs/latest/commands/client-setname/).
	for field, v := range map[string]string{"Group": c.Group, "Name": c.Name} {
		if strings.ContainsFunc(v, func(r rune) bool { return r < '!' || r > '~' }) || len(v) > 255 {
			bad("%s %q may only have 1 to 255 visible ASCII characters", field, v)
		}
	}
	if c.Name == "" {
		bad("Name is empty and the host has no name")
	}
	if (c.Handle == nil) == (c.HandleBatch == nil) {
		bad("exactly one of Handle and HandleBatch must be set")
	}
	for field, n := range map[string]int{
		"BatchSize": c.BatchSize, "Concurrency": c.Concurrency, "MaxAttempts": c.MaxAttempts,
	} {
		if n < 1 || n > MaxHeld {
			bad("%s %d is not between 1 and %d", field, n, MaxHeld)
		}
	}
	if c.MaxDeliveries < 1 {
		bad("MaxDeliveries %d is less than 1", c.MaxDeliveries)
	}
	between := func(field string, d, least time.Duration) {
		if d < least || d > longest {
			bad("%s %s is not between %s and %s", field, d, least, longest)
		}
	}
	between("ClaimIdle", c.ClaimIdle, 100*time.Millisecond)
	between("HandlerTimeout", c.HandlerTimeout, time.Millisecond)
	between("HandlerDelay", c.HandlerDelay, 0)
	between("AckDelay", c.AckDelay, 0)
	between("ConsumerExpiry", c.ConsumerExpiry, time.Millisecond)
	between("RetryMin", c.RetryMin, time.Millisecond)
	between("RetryMax", c.RetryMax, time.Millisecond)
	if c.RetryMax < c.RetryMin {
		bad("RetryMin %s is more than RetryMax %s", c.RetryMin, c.RetryMax)
	}
	if c.HandlerDelay > 0 && c.HandlerDelay >= c.HandlerTimeout {
		bad("HandlerDelay %s leaves nothing of HandlerTimeout %s", c.HandlerDelay, c.HandlerTimeout)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redisstream config: %w", err)
	}
	return nil
}
