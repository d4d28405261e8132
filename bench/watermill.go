package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillredis "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

func watermillSettings(format string, args ...any) string {
	return fmt.Sprintf("Watermill %s, watermill-redisstream %s; ", version("github.com/ThreeDotsLabs/watermill"),
		version("github.com/ThreeDotsLabs/watermill-redisstream")) + fmt.Sprintf(format, args...)
}

// watermillFill makes a backlog of n orders in the stream, each entry as Watermill's publisher writes it.
func watermillFill(ctx context.Context, s *servers, n int) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	for i := 0; i < n; {
		pipe := client.Pipeline()
		for ; i < n && pipe.Len() < 1000; i++ {
			values, err := watermillredis.DefaultMarshallerUnmarshaller{}.Marshal(stream, message.NewMessage(eventID(i), orderData(i)))
			if err != nil {
				return err
			}
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watermillGroup is a consumer group that one subscriber works on. A subscription handles one message after the other, so there is
// one for each worker.
type watermillGroup struct {
	name       string
	workers    int
	client     *redis.Client
	subscriber *watermillredis.Subscriber
}

func newWatermillGroup(s *servers, name string, workers int) (*watermillGroup, error) {
	client := openRedis(s, 2*workers+2) // a worker reads the next message while it acknowledges one
	subscriber, err := watermillredis.NewSubscriber(watermillredis.SubscriberConfig{
		Client: client, ConsumerGroup: name, DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{})
	return &watermillGroup{name, workers, client, subscriber}, err
}

func (g *watermillGroup) start(ctx context.Context, handle func(*message.Message) error) error {
	for range g.workers {
		messages, err := g.subscriber.Subscribe(ctx, stream)
		if err != nil {
			return err
		}
		go func() {
			for m := range messages {
				if err := handle(m); err != nil {
					m.Nack()
				} else {
					m.Ack()
				}
			}
		}()
	}
	return nil
}

// stop waits for the last XACK: Close would give it up. It closes the client too.
func (g *watermillGroup) stop(ctx context.Context) error {
	for {
		pending, err := g.client.XPending(ctx, stream, g.name).Result()
		if err != nil {
			return err
		}
		if pending.Count == 0 {
			return g.subscriber.Close()
		}
		time.Sleep(time.Millisecond)
	}
}

// watermillWork has each of the groups handle everything in the stream.
func watermillWork(ctx context.Context, c *child, workers int, handle func(*message.Message) error, names ...string) error {
	var groups []*watermillGroup
	for _, name := range names {
		g, err := newWatermillGroup(c.servers, name, workers)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	handled := newTally(c.n / len(names) * len(names))
	err := c.measure(func() error {
		for _, g := range groups {
			if err := g.start(ctx, func(m *message.Message) error { return handled.count(handle(m)) }); err != nil {
				return err
			}
		}
		if err := handled.wait(ctx); err != nil {
			return err
		}
		for _, g := range groups {
			if err := g.stop(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return handled.exact()
}

func watermillConsume(workers int) contender {
	n := 36_000
	if workers == 1 {
		n = 20_000
	}
	return contender{
		name:     fmt.Sprintf("watermill, %d", workers),
		settings: watermillSettings("one Subscriber without the Router, subscriptions to the group: %d", workers),
		n:        n,
		prepare:  watermillFill,
		run: func(ctx context.Context, c *child) error {
			return watermillWork(ctx, c, workers, func(*message.Message) error { return nil }, "bonus")
		},
		verify: wantDone("bonus"),
	}
}

func watermillThreeGroups() contender {
	const workers = 8
	groups := []string{"mailer", "bonus", "analytics"}
	return contender{
		name:     "watermill",
		settings: watermillSettings("a Subscriber for each group without the Router, subscriptions of each: %d", workers),
		n:        36_000,
		prepare:  func(ctx context.Context, s *servers, n int) error { return watermillFill(ctx, s, n/len(groups)) },
		run: func(ctx context.Context, c *child) error {
			return watermillWork(ctx, c, workers, func(*message.Message) error { return nil }, groups...)
		},
		verify: wantDone(groups...),
	}
}

func watermillBonus(workers int) contender {
	n := 5_000
	if workers == 1 {
		n = 2_000
	}
	return contender{
		name:     fmt.Sprintf("watermill, %d", workers),
		settings: watermillSettings("one Subscriber without the Router, subscriptions to the group: %d; one statement a message, pool of %[1]d", workers),
		n:        n,
		prepare:  watermillFill,
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, workers)
			if err != nil {
				return err
			}
			defer pool.Close()
			return watermillWork(ctx, c, workers, func(m *message.Message) error {
				return creditOne(m.Context(), pool, m.UUID, m.Payload)
			}, "bonus")
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			if err := wantDone("bonus")(ctx, s, n); err != nil {
				return err
			}
			return wantCredits(ctx, s, n)
		},
	}
}

// watermillPublish has that many goroutines publish, each one message after the other: Publish sends each with an XADD of its own,
// however many it is given.
func watermillPublish(publishers int) contender {
	return watermillPublisher(publishers, false)
}

// watermillPublishPipelined gives the publisher go-redis's AutoPipeline as its client, which puts into one pipeline what the
// goroutines send at once.
func watermillPublishPipelined(publishers int) contender {
	return watermillPublisher(publishers, true)
}

func watermillPublisher(publishers int, pipelined bool) contender {
	name, n, client := fmt.Sprintf("watermill, %d", publishers), 80_000, "a Redis client with as many connections"
	if publishers == 1 {
		n = 30_000
	}
	if pipelined {
		name, n, client = name+" pipelined", 120_000, "go-redis's AutoPipeline (experimental) as its Redis client"
	}
	return contender{
		name:     name,
		settings: watermillSettings("one Publisher without MAXLEN, goroutines: %d, %s", publishers, client),
		n:        n,
		run: func(ctx context.Context, c *child) error {
			client, err := publishingClient(c.servers, publishers, pipelined)
			if err != nil {
				return err
			}
			publisher, err := watermillredis.NewPublisher(watermillredis.PublisherConfig{Client: client}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			defer publisher.Close()
			orders := orderPayloads()
			return c.measure(func() error {
				return inParallel(publishers, c.n, func(i int) error {
					return publisher.Publish(stream, message.NewMessageWithContext(ctx, eventID(i), orders[i%len(orders)]))
				})
			})
		},
		verify: wantEntries,
	}
}

func watermillLatency() contender {
	const workers = 16
	return contender{
		name:     "watermill",
		settings: watermillSettings("one Publisher; one Subscriber without the Router, subscriptions: %d", workers),
		n:        latencyN,
		run: func(ctx context.Context, c *child) error {
			publisher, err := watermillredis.NewPublisher(watermillredis.PublisherConfig{Client: openRedis(c.servers, workers)}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			defer publisher.Close()
			g, err := newWatermillGroup(c.servers, "bonus", workers)
			if err != nil {
				return err
			}
			watch := newStopwatch(c.n)
			if err := g.start(ctx, func(m *message.Message) error { return watch.handle(m.UUID) }); err != nil {
				return err
			}
			return watch.run(ctx, c, func(ctx context.Context, i int, data []byte) error {
				return publisher.Publish(stream, message.NewMessageWithContext(ctx, eventID(i), data))
			}, func() error { return g.stop(ctx) })
		},
		verify: warmed(wantDone("bonus")),
	}
}
