package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
)

// sizes are works whose rate should not depend on what has piled up. Each contender has more of it than the one before.
func sizes() []work {
	return []work{
		grow("consume, by entries that the group has done", "messages/s", []int{0, 10_000, 100_000, 1_000_000, 5_000_000}, longStream),
		grow("publish, by entries in the stream", "messages/s", []int{0, 10_000, 100_000, 1_000_000, 5_000_000}, longStreamPublish),
		grow("consume, by entries that another group has not read", "messages/s", []int{0, 1_000, 10_000, 100_000}, groupBehind),
		grow("consume, by entries that the consumer holds for a retry", "messages/s", []int{0, 100, 1_000, 9_000}, held),
		grow("consume, by entries that another consumer of the group holds", "messages/s", []int{0, 100, 1_000, 10_000}, heldByAnother),
		grow("consume, by consumers in the group", "messages/s", []int{1, 5, 16, 50}, manyConsumers),
		grow("bonus, by rows in processed", "credits/s", []int{0, 100_000, 1_000_000, 10_000_000}, manyMarkers),
		grow("relay, by rows published since the last VACUUM", "rows/s", []int{0, 10_000, 100_000, 1_000_000}, longOutbox),
	}
}

// grow makes a contender for each size, and holds the last one to the first one's rate.
func grow(name, unit string, sizes []int, at func(size int) contender) work {
	w := work{name: name, unit: unit, sizes: true}
	for _, size := range sizes {
		c := at(size)
		c.name, c.size = thousands(float64(size)), size
		w.contenders = append(w.contenders, c)
	}
	w.goals = []goal{{who: w.contenders[len(sizes)-1].name, against: w.contenders[0].name, least: 0.85}}
	return w
}

func longStream(size int) contender {
	return contender{
		settings: "one batch handler that does nothing", n: backlog,
		prepare: func(ctx context.Context, s *servers, n int) error {
			if err := fillHistory(ctx, s, size); err != nil {
				return err
			}
			if err := createGroup(ctx, s, "bonus", "$", size); err != nil {
				return err
			}
			return fillStream(ctx, s, n)
		},
		run: oursConsume(true, "bonus"),
		verify: func(ctx context.Context, s *servers, n int) error {
			return wantGroups(ctx, s, map[string]progressOf{"bonus": {read: size + n}})
		},
	}
}

func longStreamPublish(size int) contender {
	return contender{
		settings: "100 events a call, a MaxLen that lets them in", n: 200_000,
		prepare: func(ctx context.Context, s *servers, _ int) error { return fillHistory(ctx, s, size) },
		run:     oursPublish(10_000_000),
		verify:  func(ctx context.Context, s *servers, n int) error { return wantEntries(ctx, s, size+n) },
	}
}

func groupBehind(size int) contender {
	return contender{
		settings: "one batch handler that does nothing", n: backlog,
		prepare: func(ctx context.Context, s *servers, n int) error {
			if err := createGroup(ctx, s, "bonus", "$", 0); err != nil {
				return err
			}
			if err := fillStream(ctx, s, n-size); err != nil {
				return err
			}
			if err := createGroup(ctx, s, "mailer", "$", n-size); err != nil {
				return err
			}
			return fillStream(ctx, s, size)
		},
		run: oursConsume(true, "bonus"),
		verify: func(ctx context.Context, s *servers, n int) error {
			return wantGroups(ctx, s, map[string]progressOf{"bonus": {read: n}, "mailer": {read: n - size}})
		},
	}
}

// held lets the handler fail for the first entries; their retry is far off. The clock runs for the last nine tenths of the others.
// Ten thousand would be MaxHeld, where a consumer reads no more.
func held(size int) contender {
	return contender{
		settings: "16 handlers that fail for the first entries, RetryMin 10 m, and do nothing for the others", n: backlog,
		prepare: func(ctx context.Context, s *servers, n int) error { return fillStream(ctx, s, size+n) },
		run: func(ctx context.Context, c *child) error {
			var left sync.WaitGroup
			var good atomic.Int64
			var from, to time.Time
			left.Add(1)
			firstGood := eventID(size)
			cfg := quiet("bonus", "one")
			cfg.RetryMin, cfg.RetryMax = 10*time.Minute, 10*time.Minute
			cfg.Handle = func(_ context.Context, d *broker.Delivery) error {
				if d.ID < firstGood {
					return errFirst
				}
				switch good.Add(1) {
				case int64(c.n / 10):
					from = time.Now()
				case int64(c.n):
					to = time.Now()
					left.Done()
				}
				return nil
			}
			if err := c.consumeUntil(ctx, left.Wait, cfg); err != nil {
				return err
			}
			c.took = to.Sub(from) * 10 / 9
			return nil
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			return wantGroups(ctx, s, map[string]progressOf{"bonus": {read: size + n, pending: size}})
		},
	}
}

var errFirst = errors.New("one of the first")

// heldByAnother has a consumer that was handed entries a moment ago and is silent: all others look at them again and again, until they may
// take them over.
func heldByAnother(size int) contender {
	return contender{
		settings: "one batch handler that does nothing, ClaimIdle 30 s", n: backlog,
		prepare: func(ctx context.Context, s *servers, n int) error {
			if err := createGroup(ctx, s, "bonus", "$", 0); err != nil {
				return err
			}
			if err := fillStream(ctx, s, size+n); err != nil || size == 0 {
				return err
			}
			client := redis.NewClient(s.options())
			defer client.Close()
			return client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "bonus", Consumer: "other", Streams: []string{stream, ">"}, Count: int64(size)}).Err()
		},
		run: func(ctx context.Context, c *child) error {
			var left sync.WaitGroup
			handled := countdown(&left, c.n)
			cfg := quiet("bonus", "one")
			cfg.ClaimIdle = 30 * time.Second
			cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error { handled(len(ds)); return nil }
			return c.consumeUntil(ctx, left.Wait, cfg)
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			return wantGroups(ctx, s, map[string]progressOf{"bonus": {read: size + n, pending: size}})
		},
	}
}

func manyConsumers(size int) contender {
	return contender{
		settings: "batch handlers that do nothing, each consumer with connections of its own, all in one process",
		n:        3 * backlog, // the start of fifty counts, and is a fifth of one backlog's time
		prepare:  fillStream,
		run: func(ctx context.Context, c *child) error {
			var left sync.WaitGroup
			handled := countdown(&left, c.n)
			var configs []redisstream.Config
			for i := range size {
				cfg := quiet("bonus", fmt.Sprint("consumer-", i))
				cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error { handled(len(ds)); return nil }
				configs = append(configs, cfg)
			}
			return c.consumeUntil(ctx, left.Wait, configs...)
		},
		verify: wantDone("bonus"),
	}
}

func manyMarkers(size int) contender {
	return contender{
		settings: "the service, its defaults", n: 60_000,
		prepare: func(ctx context.Context, s *servers, n int) error {
			err := s.exec(ctx, `
				insert into processed (consumer, event_id, processed_at)
				select 'bonus', '00000000-0000-7000-9000-' || lpad(to_hex(i), 12, '0'), now() - interval '1 day' * i / $1 from generate_series(1, $1) i`, size)
			if err != nil {
				return err
			}
			if err := s.exec(ctx, "vacuum analyze processed"); err != nil {
				return err
			}
			if err := s.exec(ctx, "checkpoint"); err != nil {
				return err
			}
			return fillStream(ctx, s, n)
		},
		services: []string{"bonus"}, run: serviceConsume("bonus"),
		verify: func(ctx context.Context, s *servers, n int) error { return wantCreditsBeside(ctx, s, n, size) },
	}
}

// longOutbox has size rows that were published, and no VACUUM since: all are still in the index of what waits.
func longOutbox(size int) contender {
	return contender{
		settings: "the defaults (500 rows a batch), three more that stand by", n: 100_000,
		prepare: func(ctx context.Context, s *servers, n int) error {
			if err := s.exec(ctx, "alter table outbox set (autovacuum_enabled = off)"); err != nil {
				return err
			}
			err := s.exec(ctx, `
				insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data, created_at)
				select '00000000-0000-7000-9000-' || lpad(to_hex(i), 12, '0'), '/orders', $2, at, gen_random_uuid(), 'c-' || i % 1000, 'application/json', '', '', $3, at
				from (select i, now() - interval '1 day' * ($1 - i + 3600) / ($1 + 3600) as at from generate_series(1, $1) i) old`,
				size, event.TypeOrderPlaced, orderData(0))
			if err != nil {
				return err
			}
			if err := s.exec(ctx, "update outbox set published_at = created_at, entry_id = '0-1'"); err != nil {
				return err
			}
			// The first look after an update marks in the index what is gone. A relay that publishes looks all the time.
			const look = "set enable_seqscan = off; set enable_bitmapscan = off; select id from outbox where published_at is null order by id + 0 limit 1"
			if err := s.exec(ctx, look); err != nil {
				return err
			}
			return fillOutbox(ctx, s, n, "analyze outbox")
		},
		run: relayBacklog,
		verify: func(ctx context.Context, s *servers, n int) error {
			return errors.Join(wantInOrder(ctx, s, n), s.exec(ctx, "alter table outbox reset (autovacuum_enabled)"))
		},
	}
}

// fillHistory puts entries of our shape into the stream, by a script: five million by a publisher would take minutes.
func fillHistory(ctx context.Context, s *servers, n int) error {
	options := s.options()
	options.MaxRetries, options.ReadTimeout = -1, time.Minute // what is repeated would be there twice
	client := redis.NewClient(options)
	defer client.Close()
	e := orderEvent(0)
	fields := []any{"specversion", "1.0", "id", e.ID, "source", e.Source, "type", e.Type, "time", e.Time.Format(time.RFC3339), "subject", e.Subject,
		"partitionkey", e.PartitionKey, "datacontenttype", e.DataContentType, "traceparent", e.TraceParent, "data", e.Data}
	for left := n; left > 0; left -= 1000 {
		// KEYS[1]: the stream. ARGV[1]: how many; the rest: fields and values. No reply.
		script := "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2)) end"
		if err := client.Eval(ctx, script, []string{stream}, append([]any{min(left, 1000)}, fields...)...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		progress("%s of %s entries", thousands(float64(n-left)), thousands(float64(n)))
	}
	syscall.Sync() // gigabytes that the kernel has still to write belong to the preparation
	return nil
}

// createGroup makes a group that has read so many entries, up to the position.
func createGroup(ctx context.Context, s *servers, group, position string, read int) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	args := []any{"XGROUP", "CREATE", stream, group, position, "MKSTREAM"}
	if read > 0 {
		args = append(args, "ENTRIESREAD", read)
	}
	return client.Do(ctx, args...).Err()
}
