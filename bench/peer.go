package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The peers: Watermill, asynq and River. Each hands its handler one message at a time; none of them has batches.

// tally counts what the handlers have done, and says when it is all.
type tally struct {
	left   atomic.Int64
	done   chan struct{}
	failed chan error
}

func newTally(n int) *tally {
	t := &tally{done: make(chan struct{}), failed: make(chan error, 1)}
	t.left.Store(int64(n))
	return t
}

// count is given what a handler has come to, and returns it.
func (t *tally) count(err error) error {
	if err != nil {
		select {
		case t.failed <- err:
		default: // an earlier one is told
		}
	} else if t.left.Add(-1) == 0 {
		close(t.done)
	}
	return err
}

// wait ends with the last message, or with the first error of a handler.
func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case err := <-t.failed:
		return fmt.Errorf("handler: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exact fails where messages were handled again: then the rate would be wrong.
func (t *tally) exact() error {
	if left := t.left.Load(); left != 0 {
		return fmt.Errorf("%d messages too many were handled", -left)
	}
	return nil
}

// openPool opens all of the pool's connections, so that none is opened while the clock runs.
func openPool(ctx context.Context, url string, size int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(size), int32(size)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for range size {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err // the process ends with it
		}
		defer conn.Release()
	}
	return pool, nil
}

// openRedis is a client with a connection for each of those who want one at once.
func openRedis(s *servers, conns int) *redis.Client {
	o := s.options()
	o.PoolSize, o.MinIdleConns = conns, conns
	return redis.NewClient(o)
}

// publishingClient is one for that many goroutines, which go-redis's AutoPipeline can put into one pipeline of what they send at
// once. It is a drop-in client, so whoever uses Watermill or asynq can have it.
func publishingClient(s *servers, publishers int, pipelined bool) (redis.UniversalClient, error) {
	if pipelined {
		return redis.NewClient(s.options()).AutoPipeline()
	}
	return openRedis(s, publishers), nil
}

// inParallel does n things with that many goroutines.
func inParallel(workers, n int, do func(i int) error) error {
	var group errgroup.Group
	for first := range workers {
		group.Go(func() error {
			for i := first; i < n; i += workers {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// orderPayloads are some orders, made before the clock runs, to be published again and again.
func orderPayloads() [][]byte {
	payloads := make([][]byte, customers)
	for i := range payloads {
		payloads[i] = orderData(i)
	}
	return payloads
}

// queryRow asks for one row on a connection of its own.
func queryRow(ctx context.Context, s *servers, sql string, args []any, into ...any) error {
	conn, err := pgx.Connect(ctx, s.postgresURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql, args...).Scan(into...)
}

// version is the one of a module that this program was built with.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "(version unknown)"
}
