// Command orders takes orders over HTTP, stores each with its event in one transaction, and publishes the events.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/ops"
	"example.com/orderfanout/migrations"
	"example.com/orderfanout/outbox"
)

func main() { ops.Main(run) }

// run serves until ctx is done. It starts whether or not Postgres and Redis are up: /readyz tells.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := readConfig(getenv)
	if err != nil {
		return err
	}
	svc, err := ops.New("orders", cfg.Config, stdout)
	if err != nil {
		return err
	}
	defer svc.Close()

	requests, err := pgxpool.NewWithConfig(ctx, cfg.Database)
	if err != nil {
		return fmt.Errorf("make the pool for requests: %w", err)
	}
	defer requests.Close()
	background, err := pgxpool.NewWithConfig(ctx, backgroundPool(cfg.Database))
	if err != nil {
		return fmt.Errorf("make the pool for background work: %w", err)
	}
	defer background.Close()
	trimming := redis.NewClient(cfg.Redis)
	defer trimming.Close()
	cache := newCache(cfg.Redis, svc.Log)
	defer cache.close()
	publisher, err := redisstream.NewPublisher(cfg.Redis, redisstream.PublisherConfig{Stream: stream, MaxLen: cfg.StreamMaxLen})
	if err != nil {
		return err
	}
	defer publisher.Close()

	relay, err := outbox.NewRelay(background, publisher, outbox.RelayConfig{
		RepublishWindow: cfg.RepublishWindow,
		Retention:       cfg.Retention.Outbox,
		Logger:          svc.Log,
	})
	if err != nil {
		return err
	}
	trimmer, err := redisstream.NewTrimmer(trimming, redisstream.TrimConfig{
		Stream:    stream,
		Groups:    groups,
		Retention: cfg.Retention.Stream,
		MaxLen:    cfg.StreamMaxLen,
		Logger:    svc.Log,
	})
	if err != nil {
		return err
	}

	svc.Ready("postgres", func(ctx context.Context) error { return checkSchema(ctx, background) })
	svc.Ready("relay", func(context.Context) error { return relay.Check() })
	// Without Redis orders are taken all the same, and their events wait.
	svc.Show("redis", func(ctx context.Context) error { return ops.CheckRedis(ctx, trimming) })
	accepted := newAccepted()
	svc.Metrics.MustRegister(accepted, &delivery{pool: background, relay: relay, trimmer: trimmer, log: svc.Log})

	public, private := svc.Router()
	store := newStore(requests)
	a := &api{store: store, cache: cache, wake: relay.Wake, accepted: accepted, log: svc.Log}
	a.routes(public, private)

	// What runs in the background goes on until the last request is answered, so that its event still goes out.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	for name, loop := range map[string]func(context.Context) error{
		"writer":           store.writer.run,
		"relay":            relay.Run,
		"trimmer":          trimmer.Run,
		"idempotency keys": func(ctx context.Context) error { return forgetKeys(ctx, background, svc.Log) },
	} {
		wg.Go(func() {
			if err := loop(work); err != nil {
				svc.Log.Error("background work ended", "work", name, "error", err.Error())
			}
		})
	}
	err = svc.Serve(ctx, public)
	stop()
	wg.Wait()
	return err
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
