// Command sms is a fourth consumer: it notes a text message for each order of a customer who has a phone number, once. It is the
// reference solution of docs/labs/17-sms.md.
//
//	DATABASE_URL=… sms migrate    as the owner of the database: the role, the tables, the grants
//	DATABASE_URL=… REDIS_URL=… sms
package main

import (
	"cmp"
	"context"
	_ "embed"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/processed"
)

const (
	group = "sms"
	// conns is the size of the pool, and as many handlers run at once: more would only wait for a connection. Three replicas stay
	// within the role's limit of 12 (schema.sql).
	conns = 4
	// retention is how long a marker is kept: longer than its event can come back (PROCESSED_RETENTION of the other services).
	retention = 9 * 24 * time.Hour
)

//go:embed schema.sql
var schema string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if len(os.Args) == 2 && os.Args[1] == "migrate" {
		do = migrate
	}
	if err := do(ctx); err != nil {
		log.Fatal(err)
	}
}

// migrate may be run again.
func migrate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, schema)
	return err
}

func run(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	cfg.MaxConns = conns
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	stream, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	cache, err := redis.ParseURL(cmp.Or(os.Getenv("CACHE_URL"), os.Getenv("REDIS_URL")))
	if err != nil {
		return err
	}
	phones := newPhones(cache, db)
	defer phones.close()

	consumer, err := redisstream.NewConsumer(stream, redisstream.Config{
		Stream:      "orders",
		Group:       group,
		Name:        os.Getenv("CONSUMER_NAME"),
		Types:       []string{event.TypeOrderPlaced},
		Concurrency: conns,
		Handle:      (&handler{db: db, phones: phones}).handle,
	})
	if err != nil {
		return err
	}
	go forget(ctx, db)
	return consumer.Run(ctx)
}

// forget removes old markers, every hour.
func forget(ctx context.Context, db *pgxpool.Pool) {
	for ctx.Err() == nil {
		if _, err := processed.Prune(ctx, db, group, retention); err != nil {
			log.Print("markers are not removed, trying again in an hour: ", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
}
