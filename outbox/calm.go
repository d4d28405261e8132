package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// The waits after an error: short at first, so that a passing fault costs nothing, and never long, so that rows go out
// within seconds once its cause is gone.
const (
	firstWait = 50 * time.Millisecond
	mostWait  = 2 * time.Second
	logEvery  = time.Minute
)

// calm keeps a loop quiet while something is down. One goroutine uses it.
type calm struct {
	log    *slog.Logger
	what   string
	fails  int
	told   bool // this outage stands in the log
	logged time.Time
}

// failed notes an error, logs it where a line is due, and returns how long to wait.
func (c *calm) failed(err error) time.Duration {
	c.fails++
	if now := time.Now(); now.Sub(c.logged) >= logEvery {
		c.logged, c.told = now, true
		c.log.Warn(c.what+" failed, trying again", "error", err.Error(), "failures", c.fails)
	}
	return lessUpTo(min(firstWait<<min(c.fails-1, 10), mostWait), 2)
}

// worked notes that it works again.
func (c *calm) worked() {
	if c.told {
		c.log.Info(c.what+" works again", "failures", c.fails)
	}
	c.fails, c.told = 0, false
}

// lessUpTo takes up to the n-th part of d away at random, so that replicas do not move in step.
func lessUpTo(d time.Duration, n int64) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/n+1))
}

// sleep waits for d, and reports false where ctx was done before.
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
