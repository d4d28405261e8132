package redisstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Consumer reads a stream in a consumer group and runs a handler on every entry. See the package documentation for what
// it guarantees.
type Consumer struct {
	cfg     Config
	opts    redis.Options
	current atomic.Pointer[session]
	openErr atomic.Pointer[error] // why there is none
}

// NewConsumer returns a consumer that will open connections of its own with opts, as redis.ParseURL returns them. It
// returns an error where a setting is missing or out of range, and connects to nothing yet.
func NewConsumer(opts *redis.Options, cfg Config) (*Consumer, error) {
	if opts == nil {
		return nil, errors.New("redisstream consumer: the options are nil")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, opts: *opts}, nil
}

// Run consumes until ctx is done, as signal.NotifyContext lets it be on SIGTERM, and drains then: it reads no more, lets the running
// handlers finish for up to HandlerTimeout, acknowledges them, and releases everything else for other consumers to take at once. So give the
// process a longer grace time than HandlerTimeout. It always returns nil then; nothing else ends it: whatever fails is tried again with
// growing waits. Call it once.
func (c *Consumer) Run(ctx context.Context) error {
	name := c.cfg.Name
	calm := calm{log: c.cfg.Logger.With("stream", c.cfg.Stream, "group", c.cfg.Group), what: "connect to Redis"}
	for ctx.Err() == nil {
		s, err := c.open(ctx, name)
		if errors.Is(err, errNameTaken) {
			name = c.cfg.Name + "~" + rand.Text()[:8]
			calm.log.Warn("a live consumer has this name, working under another", "consumer", c.cfg.Name, "instead", name)
			continue
		}
		if err != nil {
			c.openErr.Store(&err)
			sleep(ctx, calm.fail(err))
			continue
		}
		calm.ok()
		c.current.Store(s)
		s.run(ctx)
	}
	return nil
}

// Check returns nil while the consumer makes progress, and otherwise an error that says why it makes none: Redis has
// not answered a read rightly for ten seconds, a dependency is down, or there is work and for half of HandlerTimeout (at least
// five seconds) no handler has finished, or all have put their work off. It asks nobody and returns at once.
func (c *Consumer) Check() error {
	s := c.current.Load()
	if s == nil {
		if err := c.openErr.Load(); err != nil {
			return fmt.Errorf("not connected to Redis yet: %w", *err)
		}
		return errors.New("not connected to Redis yet")
	}
	return s.check(time.Now())
}

// options are for a client of the consumer's own. The engine decides itself what is repeated and when, so go-redis must
// not: a repeated write is a second write.
func (c *Consumer) options(conns int, onConnect func(context.Context, *redis.Conn) error) *redis.Options {
	opts := c.opts
	opts.Protocol = 2    // the reply parser reads RESP2
	opts.ClientName = "" // OnConnect gives it
	opts.MaxRetries = -1
	opts.PoolSize = conns
	opts.MaxIdleConns = 0
	opts.DialerRetries = 1
	opts.DialTimeout = 2 * time.Second
	opts.ReadTimeout = answerTime
	opts.WriteTimeout = answerTime
	opts.ContextTimeoutEnabled = true
	opts.OnConnect = onConnect
	return &opts
}

func (s *session) check(now time.Time) error {
	since := s.unanswered.Load()
	if silent := time.Duration(uptime(now) - since).Round(time.Second); since != 0 && silent > silence {
		if err := s.readErr.Load(); err != nil {
			return fmt.Errorf("no read from Redis has succeeded for %s: %w", silent, *err)
		}
		return fmt.Errorf("redis has not answered a read for %s", silent)
	}
	return s.table.check(now)
}

// check returns an error where there is work and none of it gets done.
func (t *table) check(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outage != nil {
		return fmt.Errorf("a dependency is down: %w", t.outage)
	}
	patience := max(t.cfg.HandlerTimeout/2, 5*time.Second)
	still := now.Sub(t.lastRun)
	if work := t.busy + t.queue.len() + t.solo.len(); work > 0 && still > patience {
		return fmt.Errorf("no handler has finished for %s", still.Round(time.Second))
	}
	if off := now.Sub(t.stalled); !t.stalled.IsZero() && off > patience {
		return fmt.Errorf("handlers have only put their work off for %s", off.Round(time.Second))
	}
	return nil
}
