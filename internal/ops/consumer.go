package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
)

// ReadConsumer reads what a consumer of the group takes from the environment: CONSUMER_NAME, BATCH_SIZE,
// CONCURRENCY, CLAIM_IDLE, HANDLER_TIMEOUT, MAX_ATTEMPTS, MAX_DELIVERIES, RETRY_MIN, RETRY_MAX, HANDLER_DELAY, ACK_DELAY.
// What is not set stays zero, which is the engine's default ([redisstream.Config]). Stream is "orders".
func ReadConsumer(r *env.Reader, group string) redisstream.Config {
	cfg := redisstream.Config{
		Stream:         "orders",
		Group:          group,
		Name:           r.String("CONSUMER_NAME", ""),
		BatchSize:      r.Int("BATCH_SIZE", 0, 1, redisstream.MaxHeld),
		Concurrency:    r.Int("CONCURRENCY", 0, 1, redisstream.MaxHeld),
		ClaimIdle:      r.Duration("CLAIM_IDLE", 0, 100*time.Millisecond),
		HandlerTimeout: r.Duration("HANDLER_TIMEOUT", 0, time.Millisecond),
		MaxAttempts:    r.Int("MAX_ATTEMPTS", 0, 1, 1_000),
		MaxDeliveries:  r.Int("MAX_DELIVERIES", 0, 1, 1_000_000),
		RetryMin:       r.Duration("RETRY_MIN", 0, time.Millisecond),
		RetryMax:       r.Duration("RETRY_MAX", 0, time.Millisecond),
		HandlerDelay:   r.Duration("HANDLER_DELAY", 0, 0),
		AckDelay:       r.Duration("ACK_DELAY", 0, 0),
	}
	if !visible(cfg.Name) || len(cfg.Name) > 200 {
		r.Fail("CONSUMER_NAME", "is not 1 to 200 visible ASCII characters")
	}
	if cfg.RetryMax > 0 && cfg.RetryMin > cfg.RetryMax {
		r.Fail("RETRY_MIN", "%s is more than RETRY_MAX, %s", cfg.RetryMin, cfg.RetryMax)
	}
	if cfg.HandlerTimeout > 0 && cfg.HandlerDelay >= cfg.HandlerTimeout {
		r.Fail("HANDLER_DELAY", "%s leaves no time before HANDLER_TIMEOUT, %s", cfg.HandlerDelay, cfg.HandlerTimeout)
	}
	return cfg
}

// CheckConsumer is a check that passes while the consumer makes progress.
func CheckConsumer(c *redisstream.Consumer) func(context.Context) error {
	return func(context.Context) error {
		err := c.Check()
		if err == nil {
			return nil
		}
		if cause := errors.Unwrap(err); cause != nil { // what a dependency said is for the log alone
			return fmt.Errorf("%w: %w", Reason("a dependency of the handler is down"), cause)
		}
		return Reason(err.Error())
	}
}

// Retention is how long things are kept.
type Retention struct {
	// Stream is STREAM_RETENTION: how long an entry that everybody acknowledged stays in the stream. Default 24 h.
	Stream time.Duration
	// Outbox is OUTBOX_RETENTION: how long a published event stays in the outbox, and so how far back a republish
	// can reach. Default 7 days.
	Outbox time.Duration
	// Processed is PROCESSED_RETENTION: how long a consumer remembers that it has done an event. Default 9 days.
	Processed time.Duration
}

// ReadRetention reads the Retention. It fails where PROCESSED_RETENTION is not more than OUTBOX_RETENTION +
// STREAM_RETENTION + longestBackoff (see [redisstream.Config.LongestBackoff]): an event that is published again on the
// last day of its outbox row, lies in the stream for as long as it may and then waits for all of its retries must still meet
// its marker.
func ReadRetention(r *env.Reader, longestBackoff time.Duration) Retention {
	const day = 24 * time.Hour
	ret := Retention{
		Stream:    r.Duration("STREAM_RETENTION", day, time.Second),
		Outbox:    r.Duration("OUTBOX_RETENTION", 7*day, time.Second),
		Processed: r.Duration("PROCESSED_RETENTION", 9*day, time.Second),
	}
	if need := ret.Outbox + ret.Stream + longestBackoff; ret.Processed <= need {
		r.Fail("PROCESSED_RETENTION", "%s is not more than OUTBOX_RETENTION %s + STREAM_RETENTION %s + the longest backoff %s (RETRY_MAX, MAX_ATTEMPTS) = %s",
			ret.Processed, ret.Outbox, ret.Stream, longestBackoff, need)
	}
	return ret
}
