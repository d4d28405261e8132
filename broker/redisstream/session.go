package redisstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// block is how long a read waits for new entries. Short, since a blocked read notices neither a dead
	// connection nor a context; never 0, which blocks for ever.
	block = time.Second
	// answerTime bounds a command that does not block.
	answerTime = 3 * time.Second
	// silence is how long reads may go unanswered before Check reports it.
	silence = 10 * time.Second
)

// session is a consumer under one name: from taking the name until ctx is done or the name is lost.
type session struct {
	cfg   *Config
	name  string
	log   *slog.Logger
	table *table
	acks  acks
	plate nameplate

	reads *redis.Options // of the connection for XREADGROUP alone
	wire  *wire          // that connection, for the reader alone; nil where there is none
	cmds  *redis.Client

	readerID   atomic.Int64          // of the connection that reads, for CLIENT UNBLOCK
	renamed    atomic.Bool           // a connection was made: look at the name again
	unanswered atomic.Int64          // since when (uptime) no read has succeeded; 0 where none is due
	readErr    atomic.Pointer[error] // why reads have had none, where Redis said so
	nameLost   atomic.Bool
	noClaim    atomic.Int64 // until when (uptime) nothing is taken from others
	page       atomic.Int64 // how many entries to take at a time
	clock      atomic.Pointer[serverClock]
	draining   context.Context
	groupMu    sync.Mutex
	beginCalm  loud
	buryCalm   loud
	outageCalm loud
	splitCalm  loud
}

// open takes the name: it returns errNameTaken where a live consumer has it.
func (c *Consumer) open(ctx context.Context, name string) (*session, error) {
	log := c.cfg.Logger.With("stream", c.cfg.Stream, "group", c.cfg.Group, "consumer", name)
	s := &session{cfg: &c.cfg, name: name, log: log, table: newTable(&c.cfg), acks: newAcks()}
	s.plate = nameplate{name: connName(c.cfg.Group, name), own: map[int64]string{}}
	s.beginCalm.calm = calm{log: log, what: "start an entry"}
	s.buryCalm.calm = calm{log: log, what: "write a dead letter"}
	s.outageCalm.calm = calm{log: log, what: "dependency of the handler"}
	s.splitCalm.calm = calm{log: log, what: "batch, whose entries are run again one by one"}
	s.cmds = redis.NewClient(c.options(4, func(ctx context.Context, cn *redis.Conn) error {
		s.renamed.Store(true)
		_, err := s.plate.add(ctx, cn)
		return err
	}))
	s.reads = c.options(1, func(ctx context.Context, cn *redis.Conn) error {
		s.renamed.Store(true)
		id, err := s.plate.add(ctx, cn)
		s.readerID.Store(id)
		return err
	})
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := s.plate.check(ctx, s.cmds, true); err != nil {
		s.close()
		return nil, err
	}
	s.page.Store(takeMost)
	s.holdClaims(time.Now())
	return s, nil
}

func (s *session) close() {
	if s.wire != nil {
		s.wire.close()
	}
	_ = s.cmds.Close()
}

// run works until ctx is done or the name is lost, and drains. What no handler has begun on is released at once; what those that run leave
// behind, in the end.
func (s *session) run(ctx context.Context) {
	defer s.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.draining = ctx
	handlers, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	upkeep, rest := context.WithCancel(context.WithoutCancel(ctx))
	defer rest()

	var taking, working, keeping sync.WaitGroup
	taking.Go(func() { s.read(ctx, stop) })
	taking.Go(func() { s.recover(ctx) })
	taking.Go(func() { s.tidy(ctx) })
	for range s.cfg.Concurrency {
		working.Go(func() { s.work(handlers) })
	}
	keeping.Go(func() { s.table.clock(upkeep) })
	keeping.Go(func() { s.heartbeat(upkeep) })
	keeping.Go(func() { s.sendAcks(upkeep) })

	<-ctx.Done()
	s.unblock()
	taking.Wait()
	s.table.close()
	if !s.nameLost.Load() {
		keeping.Go(s.release) // nobody waits for the handlers that still run
	}
	if s.nameLost.Load() {
		kill(errLost) // the other consumer of this name has taken up what was held here
	}
	if !waitFor(&working, s.cfg.HandlerTimeout) {
		kill(errDrained)
		waitFor(&working, time.Second)
	}
	rest()
	keeping.Wait()
	if !s.nameLost.Load() {
		s.release()
	}
}

// unblock ends a read that waits for entries (https://redis.io/docs/latest/commands/client-unblock/). Where that fails,
// the read ends by itself within its block time.
func (s *session) unblock() {
	ctx, cancel := context.WithTimeout(context.Background(), block)
	defer cancel()
	s.cmds.ClientUnblock(ctx, s.readerID.Load())
}

// waitFor waits for the group, for d at most, and reports whether all have ended.
func waitFor(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// detached is a context for what must be written down even while ctx ends.
func (s *session) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Now().Add(answerTime)
	if set, ok := ctx.Deadline(); ok && set.Before(limit) {
		limit = set
	}
	return context.WithDeadline(context.WithoutCancel(ctx), limit)
}

// holdClaims lets the consumer take nothing from others for one ClaimIdle: after a stall everybody's entries look idle.
func (s *session) holdClaims(now time.Time) {
	s.noClaim.Store(uptime(now.Add(s.cfg.ClaimIdle)))
}

// loud is a calm that several goroutines use.
type loud struct {
	mu   sync.Mutex
	calm calm
}

func (l *loud) fail(err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calm.fail(err)
}

func (l *loud) ok() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calm.ok()
}
