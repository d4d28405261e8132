package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillredis "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"example.com/orderfanout/event"
)

// placeSQL stores an order and its item in one round trip.
const placeSQL = `
	with placed as (
		insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		returning id
	)
	insert into order_items (order_id, position, sku, quantity, unit_price)
	select id, 1, $9::text, $10::bigint, $11::bigint
	from placed`

// execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error)
}

// peerOrders is the peers' POST /orders, in this process: it decodes the request, and store keeps the order and sends its event.
type peerOrders struct {
	store func(ctx context.Context, order event.OrderPlaced, eventID string) error
	n     atomic.Int64
}

func (p *peerOrders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order event.OrderPlaced
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	i := int(p.n.Add(1)) - 1
	order.ID, order.Total, order.Status, order.CreatedAt = orderID(i), total, "placed", time.Now()
	if err := p.store(r.Context(), order, eventID(i)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer, err := json.Marshal(order)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(answer)
}

func insertOrder(ctx context.Context, db execer, o event.OrderPlaced, eventID string) error {
	_, err := db.Exec(ctx, placeSQL, o.ID, o.CustomerID, o.Email, o.Currency, o.Total, o.Status, o.CreatedAt, eventID,
		o.Items[0].SKU, o.Items[0].Quantity, o.Items[0].UnitPrice)
	return err
}

// serve runs the handler on a port of its own.
func serve(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}

// credits is a message's work, and its time.
func credits(ctx context.Context, pool *pgxpool.Pool, t *orderTimes, eventID string, data []byte) error {
	if err := creditOne(ctx, pool, eventID, data); err != nil {
		return err
	}
	now := time.Now()
	order, err := event.DecodeOrderPlaced(data)
	if err != nil {
		return err
	}
	t.credited(order.ID, now)
	return nil
}

func riverEndToEnd() contender {
	const workers, conns = 100, 24
	return contender{
		name: "River",
		settings: riverSettings("an order and its job in one transaction; server and workers in the clients' process; MaxWorkers %d, FetchCooldown %v, FetchPollInterval %v, pool of %d",
			workers, riverLatencyCooldown, riverPoll, conns),
		n:       8 * latencyRate,
		prepare: riverNoBacklog,
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, conns)
			if err != nil {
				return err
			}
			defer pool.Close()
			t := newOrderTimes(c.n)
			client, err := newRiverWorker(pool, riverLatencyCooldown, workers, func(ctx context.Context, job *orderJob) error {
				return credits(ctx, pool, t, job.Args.EventID, job.Args.Order)
			}, "bonus")
			if err != nil {
				return err
			}
			if err := client.Start(ctx); err != nil {
				return err
			}
			url, stop, err := serve(&peerOrders{store: func(ctx context.Context, order event.OrderPlaced, eventID string) error {
				data, err := order.Encode()
				if err != nil {
					return err
				}
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := insertOrder(ctx, tx, order, eventID); err != nil {
						return err
					}
					_, err := client.InsertTx(ctx, tx, orderArgs{eventID, data}, &river.InsertOpts{Queue: "bonus"})
					return err
				})
			}})
			if err != nil {
				return err
			}
			defer stop()
			if err := c.placeOrders(ctx, url, t); err != nil {
				return err
			}
			return client.Stop(ctx)
		},
		verify: wantCredits,
	}
}

func watermillEndToEnd() contender {
	const workers, conns = 16, 24
	return contender{
		name: "watermill",
		settings: watermillSettings("no outbox: the order is committed, then its event is published, and lost where the process dies in between; server and subscriber in the clients' process; subscriptions: %d, pool of %d",
			workers, conns),
		n: 8 * latencyRate,
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, conns)
			if err != nil {
				return err
			}
			defer pool.Close()
			publisher, err := watermillredis.NewPublisher(watermillredis.PublisherConfig{Client: openRedis(c.servers, workers)}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			defer publisher.Close()
			t := newOrderTimes(c.n)
			g, err := newWatermillGroup(c.servers, "bonus", workers)
			if err != nil {
				return err
			}
			if err := g.start(ctx, func(m *message.Message) error { return credits(m.Context(), pool, t, m.UUID, m.Payload) }); err != nil {
				return err
			}
			url, stop, err := serve(&peerOrders{store: func(ctx context.Context, order event.OrderPlaced, eventID string) error {
				data, err := order.Encode()
				if err != nil {
					return err
				}
				if err := insertOrder(ctx, pool, order, eventID); err != nil {
					return fmt.Errorf("insert: %w", err)
				}
				return publisher.Publish(stream, message.NewMessageWithContext(ctx, eventID, data))
			}})
			if err != nil {
				return err
			}
			defer stop()
			if err := c.placeOrders(ctx, url, t); err != nil {
				return err
			}
			return g.stop(ctx)
		},
		verify: wantCredits,
	}
}
