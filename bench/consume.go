package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

const backlog = 300_000

// consume: a backlog in one group, with a handler that does nothing.
func consume() work {
	return work{
		name: "consume", unit: "messages/s",
		contenders: []contender{
			{name: "ours, batch handler", settings: "the defaults (BatchSize 100, one handler), all guarantees on", n: backlog,
				prepare: fillStream, run: oursConsume(true, "bonus"), verify: wantDone("bonus")},
			{name: "ours, single handler", settings: "the defaults (16 handlers)", n: backlog,
				prepare: fillStream, run: oursConsume(false, "bonus"), verify: wantDone("bonus")},
			{name: "bare go-redis, pipelined", settings: "the same entries; COUNT 100, XACK and the next XREADGROUP in one pipeline", n: backlog,
				prepare: fillStream, run: bareConsume("bonus"), verify: wantDone("bonus")},
			watermillConsume(1), watermillConsume(16), asynqConsume(1), asynqConsume(16), riverConsume(16), riverConsume(1000),
		},
		goals: []goal{
			{who: "ours, batch handler", against: "bare go-redis, pipelined", least: 0.85},
			{who: "ours, batch handler", against: bestPeer, least: 10},
		},
	}
}

// threeGroups: the same backlog in three groups at once, each with a consumer of its own in one process.
func threeGroups() work {
	groups := []string{"mailer", "bonus", "analytics"}
	return work{
		name: "three groups", unit: "deliveries/s",
		contenders: []contender{
			{name: "ours, batch handlers", settings: "the defaults, three consumers", n: 3 * backlog / 2,
				prepare: fillThird, run: oursConsume(true, groups...), verify: wantDone(groups...)},
			{name: "bare go-redis, pipelined", settings: "the same entries; three loops", n: 3 * backlog / 2,
				prepare: fillThird, run: bareConsume(groups...), verify: wantDone(groups...)},
			watermillThreeGroups(), asynqThreeGroups(), riverThreeGroups(),
		},
		goals: []goal{{who: "ours, batch handlers", against: "bare go-redis, pipelined", least: 0.85}},
	}
}

// fillThird makes the backlog for n deliveries in three groups.
func fillThird(ctx context.Context, s *servers, n int) error { return fillStream(ctx, s, n/3) }

// oursConsume consumes with the engine, one consumer a group, until each of the groups has handled its share, and stops in order.
func oursConsume(batch bool, groups ...string) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		var left sync.WaitGroup
		var configs []redisstream.Config
		for _, group := range groups {
			handled := countdown(&left, c.n/len(groups))
			cfg := quiet(group, "one")
			if batch {
				cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error { handled(len(ds)); return nil }
			} else {
				cfg.Handle = func(context.Context, *broker.Delivery) error { handled(1); return nil }
			}
			configs = append(configs, cfg)
		}
		return c.consumeUntil(ctx, left.Wait, configs...)
	}
}

// countdown adds one to left, and takes it away once the function that it returns has been told of n in all.
func countdown(left *sync.WaitGroup, n int) func(int) {
	var told atomic.Int64
	left.Add(1)
	return func(more int) {
		if told.Add(int64(more)) == int64(n) {
			left.Done()
		}
	}
}

// quiet is a consumer with all guarantees on, observed, that logs nothing.
func quiet(group, name string) redisstream.Config {
	return redisstream.Config{Stream: stream, Group: group, Name: name, Logger: slog.New(slog.DiscardHandler),
		Observe: func(*broker.Delivery, broker.Outcome, time.Duration) {}}
}

// consumeUntil measures consumers from their start until done returns and they have stopped in order.
func (c *child) consumeUntil(ctx context.Context, done func(), configs ...redisstream.Config) error {
	var consumers []*redisstream.Consumer
	for _, cfg := range configs {
		consumer, err := redisstream.NewConsumer(c.options(), cfg)
		if err != nil {
			return err
		}
		consumers = append(consumers, consumer)
	}
	return c.measure(func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, len(consumers))
		for _, consumer := range consumers {
			go func() { ended <- consumer.Run(ctx) }()
		}
		done()
		cancel()
		for range consumers {
			if err := <-ended; err != nil {
				return err
			}
		}
		return nil
	})
}

// bareConsume is the ceiling: a loop that reads 100 entries and acknowledges them along with the next read.
func bareConsume(groups ...string) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		client := redis.NewClient(c.options())
		defer client.Close()
		share := c.n / len(groups)
		for _, group := range groups {
			if err := client.XGroupCreate(ctx, stream, group, "0").Err(); err != nil {
				return err
			}
		}
		return c.measure(func() error {
			ended := make(chan error, len(groups))
			for _, group := range groups {
				go func() { ended <- bareLoop(ctx, client, group, share) }()
			}
			for range groups {
				if err := <-ended; err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func bareLoop(ctx context.Context, client *redis.Client, group string, n int) error {
	var ids []string
	for done := 0; done < n || len(ids) > 0; {
		pipe := client.Pipeline()
		if len(ids) > 0 {
			pipe.XAck(ctx, stream, group, ids...)
		}
		var read *redis.XStreamSliceCmd
		if done < n {
			read = pipe.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "one", Streams: []string{stream, ">"}, Count: 100, Block: -1})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		ids = ids[:0]
		if read == nil {
			return nil
		}
		for _, m := range read.Val()[0].Messages {
			ids = append(ids, m.ID)
		}
		done += len(ids)
	}
	return nil
}

// wantDone holds the groups to having nothing unread and nothing pending.
func wantDone(groups ...string) func(context.Context, *servers, int) error {
	return func(ctx context.Context, s *servers, n int) error {
		want := make(map[string]progressOf)
		for _, group := range groups {
			want[group] = progressOf{read: n / len(groups)}
		}
		return wantGroups(ctx, s, want)
	}
}

// progressOf a group: how many entries it was handed in all, and how many of them are pending.
type progressOf struct{ read, pending int }

// wantGroups wants these groups, and each of them there.
func wantGroups(ctx context.Context, s *servers, want map[string]progressOf) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	infos, err := client.XInfoGroups(ctx, stream).Result()
	if err != nil {
		return err
	}
	got := make(map[string]progressOf)
	for _, g := range infos {
		got[g.Name] = progressOf{int(g.EntriesRead), int(g.Pending)}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("read and pending by group: %v, want %v", got, want)
	}
	return nil
}
