// Bonus credits a customer's account with points for every placed order: one for each whole 100 minor units of its total. It reads
// the stream in the group "bonus", keeps accounts and ledger in Postgres, and answers GET /customers/{id}/bonus.
//
// Marker, ledger and account are written in one statement for a whole batch, so an event is credited once, however often it
// is delivered and whenever a worker dies.
//
// A role per file:
//
//	main.go    the wiring
//	config.go  the environment
//	handler.go a batch of deliveries
//	credit.go  what one event is worth, and which events are refused
//	store.go   the statements: credit a batch, read an account
//	fault.go   what an error of Postgres means
//	api.go     GET /customers/{id}/bonus
//	page.go    its query and cursor
//	prune.go   forgetting old markers
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/ops"
	"example.com/orderfanout/migrations"
)

func main() { ops.Main(run) }

// run works until ctx is done. It starts whether or not Postgres and Redis are up: /readyz tells.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := readConfig(getenv)
	if err != nil {
		return err
	}
	svc, err := ops.New("bonus", cfg.Config, stdout)
	if err != nil {
		return err
	}
	defer svc.Close()
	pool, err := pgxpool.NewWithConfig(ctx, cfg.Database)
	if err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	defer pool.Close()
	client := redis.NewClient(cfg.Redis)
	defer client.Close()
	accounts := &store{pool: pool}

	cfg.Consumer.HandleBatch = (&handler{store: accounts}).handle
	cfg.Consumer.Types = []string{event.TypeOrderPlaced}
	svc.Observe(&cfg.Consumer)
	svc.WatchGroup(cfg.Redis, cfg.Consumer.Stream, cfg.Consumer.Group)
	consumer, err := redisstream.NewConsumer(cfg.Redis, cfg.Consumer)
	if err != nil {
		return err
	}

	svc.Ready("postgres", func(ctx context.Context) error { return checkSchema(ctx, pool) })
	svc.Ready("redis", func(ctx context.Context) error { return ops.CheckRedis(ctx, client) })
	svc.Ready("consumer", ops.CheckConsumer(consumer))
	router, private := svc.Router()
	private.Get("/customers/{id}/bonus", (&api{store: accounts, log: svc.Log}).getBonus)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return svc.Serve(ctx, router) })
	g.Go(func() error { return prune(ctx, pool, cfg.Retention.Processed, svc.Log) })
	return g.Wait()
}

// checkSchema returns nil where Postgres answers and has the schema.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	err := migrations.Check(ctx, pool)
	for _, known := range []error{migrations.ErrBehind, migrations.ErrDirty} {
		if errors.Is(err, known) {
			return ops.Reason(known.Error())
		}
	}
	return err
}
