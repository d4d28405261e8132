package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"
)

// endToEnd: from a client's POST /orders to the commit of the bonus.
func endToEnd() work {
	const ours = "ours, orders and bonus"
	return work{
		name: "order to credited", unit: "orders/s",
		contenders: []contender{
			{name: ours, settings: "500 a second over HTTP from 16 clients; until the line that bonus logs after its commit", n: 8 * latencyRate, run: oursEndToEnd, verify: wantCredits},
			riverEndToEnd(), watermillEndToEnd(),
		},
		goals: []goal{{who: ours, p50: 3, p99: 15}},
	}
}

func oursEndToEnd(ctx context.Context, c *child) error {
	t := newOrderTimes(c.n)
	c.output = &bonusLog{orders: t}
	url, stopOrders, err := c.service(ctx, "orders")
	if err != nil {
		return err
	}
	_, stopBonus, err := c.service(ctx, "bonus", "LOG_LEVEL=info")
	if err != nil {
		return errors.Join(err, stopOrders())
	}
	err = c.placeOrders(ctx, url, t)
	return errors.Join(err, stopBonus(), stopOrders())
}

// orderTimes brings an order's request and its credit together by the order's id.
type orderTimes struct {
	*times
	mu      sync.Mutex
	at      map[string]time.Time // credited; the answer to the request is still to come
	numbers map[string]int       // answered; the credit is still to come
}

func newOrderTimes(n int) *orderTimes {
	return &orderTimes{times: newTimes(n), at: make(map[string]time.Time), numbers: make(map[string]int)}
}

func (o *orderTimes) placed(id string, i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, ok := o.at[id]; ok {
		o.end(i, at)
		return
	}
	o.numbers[id] = i
}

func (o *orderTimes) credited(id string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i, ok := o.numbers[id]; ok {
		o.end(i, at)
		return
	}
	o.at[id] = at
}

// bonusLog reads what bonus logs.
type bonusLog struct {
	orders *orderTimes
	rest   []byte
}

func (l *bonusLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		var got struct {
			Time    time.Time `json:"time"`
			Outcome string    `json:"outcome"`
			OrderID string    `json:"order_id"`
		}
		if json.Unmarshal(line, &got) == nil && got.Outcome == "done" {
			l.orders.credited(got.OrderID, got.Time)
		}
		l.rest = rest
	}
}

// placeOrders posts c.n orders at latencyRate, and waits until all of them are credited.
func (c *child) placeOrders(ctx context.Context, url string, t *orderTimes) error {
	conns := make([]*httpConn, lanes)
	for i := range conns {
		var err error
		if conns[i], err = dialHTTP(strings.TrimPrefix(url, "http://")); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	err := c.measure(func() error {
		err := c.pace(t.times, func(i int) error {
			conn := conns[i%len(conns)] // a lane's own
			if err := conn.post(i); err != nil {
				return err
			}
			_, rest, _ := bytes.Cut(conn.got, []byte(`"id":"`))
			id, _, _ := bytes.Cut(rest, []byte(`"`))
			t.placed(string(id), i)
			return nil
		})
		if err != nil {
			return err
		}
		return t.wait(ctx)
	})
	c.latencies = t.took
	return err
}
