package main

import (
	"context"
	"encoding/json"
	"errors"
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

// store keeps an order and sends its event, which has data.
type store func(ctx context.Context, order event.OrderPlaced, eventID string, data []byte) error

// peerOrders is the peers' POST /orders, in this process.
type peerOrders struct {
	store store
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
	data, err := order.Encode()
	if err == nil {
		err = p.store(r.Context(), order, eventID(i), data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(data)
}

func insertOrder(ctx context.Context, db execer, o event.OrderPlaced, eventID string) error {
	_, err := db.Exec(ctx, placeSQL, o.ID, o.CustomerID, o.Email, o.Currency, o.Total, o.Status, o.CreatedAt, eventID,
		o.Items[0].SKU, o.Items[0].Quantity, o.Items[0].UnitPrice)
	return err
}

// peerEndToEnd serves POST /orders with the store that begin returns, places the orders, and waits until they are credited.
func (c *child) peerEndToEnd(ctx context.Context, conns int, begin func(*pgxpool.Pool, *orderTimes) (store, func() error, error)) error {
	pool, err := openPool(ctx, c.postgresURL, conns)
	if err != nil {
		return err
	}
	defer pool.Close()
	t := newOrderTimes(c.n)
	store, stop, err := begin(pool, t)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, stop())
	}
	server := &http.Server{Handler: &peerOrders{store: store}}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	err = c.placeOrders(ctx, "http://"+listener.Addr().String(), t)
	return errors.Join(err, stop())
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
			return c.peerEndToEnd(ctx, conns, func(pool *pgxpool.Pool, t *orderTimes) (store, func() error, error) {
				client, err := newRiverWorker(pool, riverLatencyCooldown, workers, func(ctx context.Context, job *orderJob) error {
					return credits(ctx, pool, t, job.Args.EventID, job.Args.Order)
				}, "bonus")
				if err != nil {
					return nil, nil, err
				}
				place := func(ctx context.Context, order event.OrderPlaced, eventID string, data []byte) error {
					return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
						if err := insertOrder(ctx, tx, order, eventID); err != nil {
							return err
						}
						_, err := client.InsertTx(ctx, tx, orderArgs{eventID, data}, &river.InsertOpts{Queue: "bonus"})
						return err
					})
				}
				return place, func() error { return client.Stop(ctx) }, client.Start(ctx)
			})
		},
		verify: warmed(wantCredits),
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
			return c.peerEndToEnd(ctx, conns, func(pool *pgxpool.Pool, t *orderTimes) (store, func() error, error) {
				publisher, err := watermillredis.NewPublisher(watermillredis.PublisherConfig{Client: openRedis(c.servers, workers)}, watermill.NopLogger{})
				if err != nil {
					return nil, nil, err
				}
				g, err := newWatermillGroup(c.servers, "bonus", workers)
				if err != nil {
					return nil, nil, errors.Join(err, publisher.Close())
				}
				place := func(ctx context.Context, order event.OrderPlaced, eventID string, data []byte) error {
					if err := insertOrder(ctx, pool, order, eventID); err != nil {
						return err
					}
					return publisher.Publish(stream, message.NewMessageWithContext(ctx, eventID, data))
				}
				stop := func() error { return errors.Join(g.stop(ctx), publisher.Close()) }
				return place, stop, g.start(ctx, func(m *message.Message) error { return credits(m.Context(), pool, t, m.UUID, m.Payload) })
			})
		},
		verify: warmed(wantCredits),
	}
}
