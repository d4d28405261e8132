// Analytics adds up every placed order: how many, by how many customers, for how much, of what, on which day. It reads the
// stream in the group "analytics", keeps its sums in Redis, and answers GET /stats.
//
// One Lua script notes a batch of events as counted and adds them to the sums, all or nothing, so that an event
// counts once however often it is delivered and whenever a worker dies.
//
// A role per file:
//
//	main.go    the wiring
//	config.go  the environment
//	handler.go a batch of deliveries
//	event.go   what one event adds, and which events are refused
//	apply.go   the script that counts a batch
//	stats.go   the script that reads the sums
//	api.go     GET /stats
//	keys.go    the keys
package main

import (
	"context"
	"io"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/ops"
)

func main() { ops.Main(run) }

func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := readConfig(getenv)
	if err != nil {
		return err
	}
	svc, err := ops.New("analytics", cfg.Config, stdout)
	if err != nil {
		return err
	}
	defer svc.Close()
	client := redis.NewClient(cfg.Redis)
	defer client.Close()
	stats := &store{client: client, retention: cfg.Retention.Processed, log: svc.Log}

	cfg.Consumer.HandleBatch = stats.handle
	cfg.Consumer.Types = []string{event.TypeOrderPlaced}
	svc.Observe(&cfg.Consumer)
	svc.WatchGroup(cfg.Redis, cfg.Consumer.Stream, cfg.Consumer.Group)
	consumer, err := redisstream.NewConsumer(cfg.Redis, cfg.Consumer)
	if err != nil {
		return err
	}

	svc.Ready("redis", func(ctx context.Context) error { return ops.CheckRedis(ctx, client) })
	svc.Ready("consumer", ops.CheckConsumer(consumer))
	router, private := svc.Router()
	private.Get("/stats", stats.serve)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return svc.Serve(ctx, router) })
	return g.Wait()
}
