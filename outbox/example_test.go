package outbox_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/outbox"
)

// An event is committed with what it tells of, or not at all.
func ExampleAdd() {
	rename := func(ctx context.Context, pool *pgxpool.Pool, relay *outbox.Relay, id, name, eventID string) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `update people set name = $2 where id = $1`, id, name); err != nil {
				return err
			}
			return outbox.Add(ctx, tx, broker.Event{
				ID: eventID, Source: "/people", Type: "person.renamed.v1", Time: time.Now(), Subject: id,
				DataContentType: "application/json", Data: []byte(`{"id":"` + id + `"}`),
			})
		})
		if err != nil {
			return err
		}
		relay.Wake() // without it, the event waits for the next sweep
		return nil
	}
	_ = rename
}

// A relay that publishes to a Redis Stream. Each replica of the service runs one.
func ExampleNewRelay() {
	run := func(ctx context.Context, pool *pgxpool.Pool) error {
		publisher, err := redisstream.NewPublisher(&redis.Options{Addr: "localhost:6379"}, redisstream.PublisherConfig{Stream: "people"})
		if err != nil {
			return err
		}
		defer publisher.Close()
		relay, err := outbox.NewRelay(pool, publisher, outbox.RelayConfig{})
		if err != nil {
			return err
		}
		return relay.Run(ctx) // until ctx is done
	}
	_ = run
}

// One group has lost its work: the last day's events are published again for that group alone.
func ExampleEvents() {
	republish := func(ctx context.Context, pool *pgxpool.Pool, publisher broker.Publisher, group string) error {
		var known broker.Position
		return outbox.Events(ctx, pool, time.Now().Add(-24*time.Hour), func(events []broker.Event) error {
			for i := range events {
				events[i].OnlyGroup = group
			}
			receipt, err := publisher.Publish(ctx, events, known)
			known = receipt.Position
			return err
		})
	}
	_ = republish
}
