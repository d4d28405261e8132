// Command sms is a fourth consumer: it notes a text message for each order, once.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
	"example.com/orderfanout/processed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	consumer, err := redisstream.NewConsumer(options, redisstream.Config{
		Stream: "orders",
		Group:  "sms",
		Types:  []string{event.TypeOrderPlaced},
		Handle: func(ctx context.Context, d *broker.Delivery) error {
			order, err := event.DecodeOrderPlaced(d.Data)
			if err != nil {
				return broker.Permanent(err)
			}
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				fresh, err := processed.Claim(ctx, tx, "sms", []string{d.ID})
				if err != nil || len(fresh) == 0 {
					return err // an error, or done before
				}
				_, err = tx.Exec(ctx, "insert into sms (order_id, text) values ($1, $2)", order.ID, "Your order is placed.")
				return err
			})
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
