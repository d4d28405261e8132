package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"example.com/orderfanout/event"
)

const (
	// What River's own benchmark uses; the defaults, 100ms and a second, bound the rate.
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	// Each insert may notify the workers once in a cooldown, and Postgres commits those that notify one after the other: with 2ms
	// nearly all do, and 500 a second are at times too many.
	riverLatencyCooldown = 10 * time.Millisecond
	riverBatch           = 100
)

// orderArgs are a job's arguments: the order, and the event's id, since a job's own is a number of River's.
type orderArgs struct {
	EventID string          `json:"event_id"`
	Order   json.RawMessage `json:"order"`
}

func (orderArgs) Kind() string { return event.TypeOrderPlaced }

type orderJob = river.Job[orderArgs]

func riverSettings(format string, args ...any) string {
	return fmt.Sprintf("River %s, riverpgxv5; ", version("github.com/riverqueue/river")) + fmt.Sprintf(format, args...)
}

func newRiverInserter(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
}

func newRiverWorker(pool *pgxpool.Pool, cooldown time.Duration, workers int, handle func(context.Context, *orderJob) error, queues ...string) (*river.Client[pgx.Tx], error) {
	cfg := &river.Config{
		FetchCooldown: cooldown, FetchPollInterval: riverPoll, Logger: slog.New(slog.DiscardHandler),
		Workers: river.NewWorkers(), Queues: make(map[string]river.QueueConfig),
	}
	river.AddWorker(cfg.Workers, river.WorkFunc(handle))
	for _, q := range queues {
		cfg.Queues[q] = river.QueueConfig{MaxWorkers: workers}
	}
	return river.NewClient(riverpgxv5.New(pool), cfg)
}

// riverFill makes River's tables and a backlog of n jobs, shared out among the queues.
func riverFill(queues ...string) func(context.Context, *servers, int) error {
	return func(ctx context.Context, s *servers, n int) error {
		pool, err := pgxpool.New(ctx, s.postgresURL)
		if err != nil {
			return err
		}
		defer pool.Close()
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err != nil {
			return err
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return err
		}
		client, err := newRiverInserter(pool)
		if err != nil {
			return err
		}
		for _, queue := range queues {
			share := n / len(queues)
			for from := 0; from < share; from += 5000 {
				if _, err := client.InsertManyFast(ctx, riverJobs(from, min(from+5000, share), queue)); err != nil {
					return err
				}
			}
		}
		_, err = pool.Exec(ctx, "vacuum analyze river_job") // or it would be planned for as empty
		return err
	}
}

// riverNoBacklog only makes the tables.
func riverNoBacklog(ctx context.Context, s *servers, _ int) error { return riverFill()(ctx, s, 0) }

func riverJobs(from, to int, queue string) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, 0, to-from)
	for i := from; i < to; i++ {
		jobs = append(jobs, river.InsertManyParams{Args: orderArgs{eventID(i), orderData(i)}, InsertOpts: &river.InsertOpts{Queue: queue}})
	}
	return jobs
}

// riverWork has a client handle everything that is in its queues. Its Stop waits until the last job is completed in Postgres too.
func riverWork(ctx context.Context, c *child, pool *pgxpool.Pool, workers int, handle func(context.Context, *orderJob) error, queues ...string) error {
	handled := newTally(c.n / len(queues) * len(queues))
	client, err := newRiverWorker(pool, riverCooldown, workers, func(ctx context.Context, job *orderJob) error {
		return handled.count(handle(ctx, job))
	}, queues...)
	if err != nil {
		return err
	}
	err = c.measure(func() error {
		if err := client.Start(ctx); err != nil {
			return err
		}
		if err := handled.wait(ctx); err != nil {
			return err
		}
		return client.Stop(ctx)
	})
	if err != nil {
		return err
	}
	return handled.exact()
}

// riverRun is riverWork with a handler that does nothing.
func riverRun(workers int, queues ...string) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		pool, err := openPool(ctx, c.postgresURL, 8) // for fetching, completing and listening; more made no difference
		if err != nil {
			return err
		}
		defer pool.Close()
		return riverWork(ctx, c, pool, workers, func(context.Context, *orderJob) error { return nil }, queues...)
	}
}

// wantRiver holds each queue to its share of completed jobs, each at its first attempt, and to no others.
func wantRiver(queues ...string) func(context.Context, *servers, int) error {
	return func(ctx context.Context, s *servers, n int) error {
		for _, q := range queues {
			var all, completed, attempts int
			err := queryRow(ctx, s, `
				select count(*), count(*) filter (where state = 'completed'), coalesce(sum(attempt), 0)
				from river_job
				where queue = $1`, []any{q}, &all, &completed, &attempts)
			if err != nil {
				return err
			}
			if want := n / len(queues); all != want || completed != want || attempts != want {
				return fmt.Errorf("queue %s: %d jobs, %d completed, %d attempts, want %d of each", q, all, completed, attempts, want)
			}
		}
		return nil
	}
}

func riverConsume(workers int) contender {
	n := 10_000
	if workers > 100 {
		n = 24_000
	}
	return contender{
		name:     fmt.Sprintf("River, %d", workers),
		settings: riverSettings("MaxWorkers %d, FetchCooldown %v, FetchPollInterval %v", workers, riverCooldown, riverPoll),
		n:        n,
		prepare:  riverFill("bonus"),
		run:      riverRun(workers, "bonus"),
		verify:   wantRiver("bonus"),
	}
}

func riverThreeGroups() contender {
	const workers = 1000
	queues := []string{"mailer", "bonus", "analytics"}
	return contender{
		name:     "River",
		settings: riverSettings("a queue for each group with a job of its own for each message; MaxWorkers %d a queue, FetchCooldown %v, FetchPollInterval %v", workers, riverCooldown, riverPoll),
		n:        24_000,
		prepare:  riverFill(queues...),
		run:      riverRun(workers, queues...),
		verify:   wantRiver(queues...),
	}
}

func riverBonus(workers int) contender {
	n := 3_000
	if workers == 1 {
		n = 800
	}
	return contender{
		name: fmt.Sprintf("River, %d", workers),
		settings: riverSettings("MaxWorkers %d, FetchCooldown %v, FetchPollInterval %v; one statement a job, pool of %d; River completes the jobs in batches "+
			"(JobCompleteTx in the handler's transaction takes more round trips, and does about half as many)", workers, riverCooldown, riverPoll, workers+6),
		n:       n,
		prepare: riverFill("bonus"),
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, workers+6)
			if err != nil {
				return err
			}
			defer pool.Close()
			return riverWork(ctx, c, pool, workers, func(ctx context.Context, job *orderJob) error {
				return creditOne(ctx, pool, job.Args.EventID, job.Args.Order)
			}, "bonus")
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			if err := wantRiver("bonus")(ctx, s, n); err != nil {
				return err
			}
			return wantCredits(ctx, s, n)
		},
	}
}

func riverPublish() contender {
	const publishers = 4
	return contender{
		name:     "River, 100 a call",
		settings: riverSettings("InsertManyFast of %d jobs, goroutines: %d (more do no more)", riverBatch, publishers),
		n:        40_000,
		prepare:  riverNoBacklog,
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, publishers)
			if err != nil {
				return err
			}
			defer pool.Close()
			client, err := newRiverInserter(pool)
			if err != nil {
				return err
			}
			jobs := riverJobs(0, c.n, "bonus")
			return c.measure(func() error {
				return inParallel(publishers, (c.n+riverBatch-1)/riverBatch, func(i int) error {
					_, err := client.InsertManyFast(ctx, jobs[i*riverBatch:min((i+1)*riverBatch, c.n)])
					return err
				})
			})
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			var available int
			err := queryRow(ctx, s, "select count(*) from river_job where queue = 'bonus' and state = 'available'", nil, &available)
			if err == nil && available != n {
				err = fmt.Errorf("%d jobs available, want %d", available, n)
			}
			return err
		},
	}
}

func riverLatency() contender {
	const workers, conns = 100, 24
	return contender{
		name:     "River",
		settings: riverSettings("Insert; MaxWorkers %d, FetchCooldown %v, FetchPollInterval %v, pool of %d", workers, riverLatencyCooldown, riverPoll, conns),
		n:        latencyN,
		prepare:  riverNoBacklog,
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, conns)
			if err != nil {
				return err
			}
			defer pool.Close()
			watch := newStopwatch(c.n)
			client, err := newRiverWorker(pool, riverLatencyCooldown, workers, func(_ context.Context, job *orderJob) error {
				return watch.handle(job.Args.EventID)
			}, "bonus")
			if err != nil {
				return err
			}
			if err := client.Start(ctx); err != nil {
				return err
			}
			return watch.run(ctx, c, func(ctx context.Context, i int, data []byte) error {
				_, err := client.Insert(ctx, orderArgs{eventID(i), data}, &river.InsertOpts{Queue: "bonus"})
				return err
			}, func() error { return client.Stop(ctx) })
		},
		verify: warmed(wantRiver("bonus")),
	}
}
