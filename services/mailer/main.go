// The mailer confirms every placed order to its customer by mail. It reads the stream in the group "mailer" and hands the
// mails to the SMTP server named by SMTP_URL.
//
// A mail cannot be rolled back, so there is a marker around it in Redis: an event is done once whatever happens, except that
// a crash, or a connection lost, between the server's acceptance and our note of it repeats the mail, always with the same
// Message-ID.
//
// A role per file:
//
//	main.go     the wiring
//	config.go   the environment
//	handler.go  one delivery: marker, send, marker
//	marker.go   the marker and its scripts
//	keys.go     its key
//	message.go  an order as a mail
//	body.go     its text and HTML
//	money.go    minor units in words that people read
//	address.go  addresses: IDN, masking
//	sender.go   kept connections; what an SMTP failure means for the entry
//	conn.go     one SMTP connection
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
	svc, err := ops.New("mailer", cfg.Config, stdout)
	if err != nil {
		return err
	}
	defer svc.Close()
	client := redis.NewClient(cfg.Redis)
	defer client.Close()
	sender := newSender(cfg.SMTP, cfg.Consumer.Concurrency)
	defer sender.Close()

	h := &handler{
		markers: newMarkers(client, cfg.Consumer, cfg.Retention.Processed),
		sender:  sender,
		from:    cfg.From,
	}
	cfg.Consumer.Handle = h.handle
	cfg.Consumer.Types = []string{event.TypeOrderPlaced}
	svc.Observe(&cfg.Consumer)
	svc.WatchGroup(cfg.Redis, cfg.Consumer.Stream, cfg.Consumer.Group)
	consumer, err := redisstream.NewConsumer(cfg.Redis, cfg.Consumer)
	if err != nil {
		return err
	}

	svc.Ready("redis", func(ctx context.Context) error { return ops.CheckRedis(ctx, client) })
	svc.Ready("consumer", ops.CheckConsumer(consumer))
	router, _ := svc.Router() // no routes of its own

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return svc.Serve(ctx, router) })
	return g.Wait()
}
