package redisstream_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver"
)

// One event goes out and comes in.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options, stop := startRedis(ctx) // in a program: redis.ParseURL(os.Getenv("REDIS_URL"))
	defer stop()

	publisher, err := redisstream.NewPublisher(options, redisstream.PublisherConfig{Stream: "parcels"})
	if err != nil {
		log.Fatal(err)
	}
	defer publisher.Close()
	event := broker.Event{ID: "0198c0de", Type: "parcel.sent.v1", Data: []byte(`{"to":"Ada"}`)}
	if _, err := publisher.Publish(ctx, []broker.Event{event}, broker.Position{}); err != nil {
		log.Fatal(err)
	}

	consumer, err := redisstream.NewConsumer(options, redisstream.Config{
		Stream: "parcels",
		Group:  "labels",
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, d *broker.Delivery) error {
			fmt.Printf("%s %s, attempt %d\n", d.Type, d.Data, d.Attempt)
			cancel() // drains the consumer
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: parcel.sent.v1 {"to":"Ada"}, attempt 1
}

func startRedis(ctx context.Context) (*redis.Options, func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	server, err := localserver.StartRedis(ctx, localserver.RedisConfig{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	return server.Options(), func() {
		_ = server.Stop()
		_ = os.RemoveAll(dir)
	}
}
