package redisstream

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// The waits after an error: short at first, so that a passing fault costs nothing, and never long, so that work goes on
// within seconds once its cause is gone.
const (
	calmFirst = 50 * time.Millisecond
	calmMost  = 2 * time.Second
	calmEvery = time.Minute // between two log lines about one outage
)

var started = time.Now()

// uptime is what atomics hold instead of a time: it goes on where somebody sets the clock back.
func uptime(at time.Time) int64 { return int64(at.Sub(started)) }

// calm keeps a loop quiet while something is down: growing waits with jitter, and a log line a minute. One goroutine
// uses it.
type calm struct {
	log    *slog.Logger
	what   string
	fails  int
	told   bool      // this outage is in the log
	logged time.Time // the last line about any
}

// fail notes an error, logs it where a line is due, and returns how long to wait.
func (c *calm) fail(err error) time.Duration {
	c.fails++
	if now := time.Now(); now.Sub(c.logged) >= calmEvery {
		c.logged, c.told = now, true
		c.log.Warn(c.what+": failing, trying again", "error", err.Error(), "failures", c.fails)
	}
	return pause(c.fails)
}

// ok notes that it works again.
func (c *calm) ok() {
	if c.told {
		c.log.Info(c.what+": works again", "failures", c.fails)
	}
	c.fails, c.told = 0, false
}

// pause is the wait after the n-th error in a row.
func pause(n int) time.Duration {
	return jitter(min(calmFirst<<min(n-1, 10), calmMost))
}

// jitter takes up to half of d away at random.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/2+1))
}

// sleep waits for d or until ctx is done, and reports whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
