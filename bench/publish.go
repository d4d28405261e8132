package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// perPublish is how many events go out at once.
const perPublish = 100

// publish: events that are at hand already.
func publish() work {
	return work{
		name: "publish", unit: "messages/s",
		contenders: []contender{
			{name: "ours, one publisher", settings: "100 events a call, each call one transaction that also asks where the stream stood", n: 200_000,
				run: oursPublish(0), verify: wantEntries},
			{name: "bare go-redis, one pipeline", settings: "the same entries, 100 XADD a pipeline", n: 200_000,
				run: barePublish(1), verify: wantEntries},
			{name: "bare go-redis, 16 pipelines", settings: "the same entries, 100 XADD a pipeline", n: 200_000,
				run: barePublish(16), verify: wantEntries},
			watermillPublish(1), watermillPublish(16), watermillPublishPipelined(256),
			asynqPublish(1), asynqPublish(16), asynqPublishPipelined(256), riverPublish(),
		},
	}
}

// oursPublish publishes into a stream that may be so long, 0 for the default.
func oursPublish(maxLen int64) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		p, err := redisstream.NewPublisher(c.options(), redisstream.PublisherConfig{Stream: stream, MaxLen: maxLen})
		if err != nil {
			return err
		}
		defer p.Close()
		if _, err := p.Publish(ctx, nil, broker.Position{}); err != nil { // connects
			return err
		}
		return c.measure(func() error {
			events := make([]broker.Event, 0, perPublish)
			for i := range c.n {
				if events = append(events, orderEvent(i)); len(events) == perPublish || i == c.n-1 {
					if _, err := p.Publish(ctx, events, broker.Position{}); err != nil {
						return err
					}
					events = events[:0]
				}
			}
			return nil
		})
	}
}

func barePublish(pipelines int) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		client := redis.NewClient(c.options())
		defer client.Close()
		if err := client.Ping(ctx).Err(); err != nil {
			return err
		}
		return c.measure(func() error {
			errs := make(chan error, pipelines)
			var wg sync.WaitGroup
			for p := range pipelines {
				wg.Go(func() { errs <- bareAdd(ctx, client, c.n*p/pipelines, c.n*(p+1)/pipelines) })
			}
			wg.Wait()
			for range pipelines {
				if err := <-errs; err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// bareAdd adds the orders from to to.
func bareAdd(ctx context.Context, client *redis.Client, from, to int) error {
	pipe := client.Pipeline()
	for i := from; i < to; i++ {
		e := orderEvent(i)
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{
			"specversion", "1.0", "id", e.ID, "source", e.Source, "type", e.Type, "time", e.Time.Format("2006-01-02T15:04:05Z"),
			"subject", e.Subject, "partitionkey", e.PartitionKey, "datacontenttype", e.DataContentType, "traceparent", e.TraceParent, "data", e.Data}})
		if pipe.Len() == perPublish || i == to-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantEntries wants n entries in the stream.
func wantEntries(ctx context.Context, s *servers, n int) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	got, err := client.XLen(ctx, stream).Result()
	if err != nil {
		return err
	}
	if got != int64(n) {
		return fmt.Errorf("%d entries, want %d", got, n)
	}
	return nil
}
