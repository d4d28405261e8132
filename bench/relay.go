package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/outbox"
)

// relay: a backlog in the outbox, while three more replicas stand by.
func relay() work {
	return work{
		name: "relay", unit: "rows/s",
		contenders: []contender{
			{name: "ours, one relay and three that stand by", settings: "the defaults (500 rows a batch)", n: 100_000,
				prepare: vacuumedOutbox, run: relayBacklog, verify: wantInOrder},
		},
		goals: []goal{{who: "ours, one relay and three that stand by", against: "", least: 50_000}},
	}
}

func vacuumedOutbox(ctx context.Context, s *servers, n int) error {
	return fillOutbox(ctx, s, n, "vacuum analyze outbox")
}

// fillOutbox adds n rows and then says what is to be done to the table.
func fillOutbox(ctx context.Context, s *servers, n int, then string) error {
	conn, err := pgx.Connect(ctx, s.as("orders"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for i := 0; i < n; {
		events := make([]broker.Event, 0, 1000)
		for ; i < n && len(events) < 1000; i++ {
			events = append(events, orderEvent(i))
		}
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, events...) }); err != nil {
			return err
		}
	}
	return s.exec(ctx, then)
}

func relayBacklog(ctx context.Context, c *child) error {
	pool, err := pgxpool.New(ctx, c.as("orders"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	relays := make([]*outbox.Relay, 4)
	for i := range relays {
		p, err := redisstream.NewPublisher(c.options(), redisstream.PublisherConfig{Stream: stream})
		if err != nil {
			return err
		}
		defer p.Close()
		relays[i], err = outbox.NewRelay(pool, p, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
	}
	return c.measure(func() error {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for _, r := range relays {
			wg.Go(func() { _ = r.Run(ctx) })
		}
		for published := 0; published < c.n; {
			time.Sleep(time.Millisecond)
			published = 0
			for _, r := range relays {
				published += int(r.Stats().Published)
			}
		}
		cancel()
		wg.Wait()
		return nil
	})
}

// wantInOrder wants each of the n rows of the outbox published once, and the stream in the order of the rows.
func wantInOrder(ctx context.Context, s *servers, n int) error {
	if err := wantEntries(ctx, s, n); err != nil {
		return err
	}
	client := redis.NewClient(s.options())
	defer client.Close()
	at, i := "-", 0
	for {
		page, err := client.XRangeN(ctx, stream, at, "+", 1000).Result()
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			if m.Values["id"] != eventID(i) {
				return fmt.Errorf("entry %d is event %v, want %s", i, m.Values["id"], eventID(i))
			}
			i++
		}
		at = "(" + page[len(page)-1].ID
	}
	conn, err := pgx.Connect(ctx, s.postgresURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var left int
	if err := conn.QueryRow(ctx, "select count(*) from outbox where published_at is null").Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d rows are not marked", left)
	}
	return nil
}
