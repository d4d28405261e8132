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
			{name: ours, settings: "500 a second over HTTP from 16 clients, after a second of warming up; until the line that bonus logs after its commit", n: 8 * latencyRate,
				services: []string{"orders", "bonus"}, run: oursEndToEnd, verify: warmed(wantCredits)},
			riverEndToEnd(), watermillEndToEnd(),
		},
		goals: []goal{{who: ours, p50: 3, p99: 15}},
	}
}

// oursEndToEnd has the services' CPU time counted from their start to their end.
func oursEndToEnd(ctx context.Context, c *child) error {
	cpu := cpuTime()
	t := newOrderTimes(c.n)
	c.output = &bonusLog{orders: t}
	orders, err := c.service(ctx, "orders")
	if err != nil {
		return err
	}
	bonus, err := c.service(ctx, "bonus", "LOG_LEVEL=info")
	if err != nil {
		return errors.Join(err, orders.stop())
	}
	err = c.placeOrders(ctx, orders.url, t)
	err = errors.Join(err, bonus.stop(), orders.stop())
	c.cpu = cpuTime() - cpu
	return err
}

// orderTimes brings an order's request and its credit together by the order's id.
type orderTimes struct {
	*times
	mu   sync.Mutex
	half map[string]half
}

// half is what is known of an order: its request, once answered, or its credit.
type half struct {
	i  int       // of the request
	at time.Time // of the credit
}

// newOrderTimes is for n orders and those of the warm-up.
func newOrderTimes(n int) *orderTimes {
	return &orderTimes{times: newTimes(latencyWarm + n), half: make(map[string]half)}
}

func (o *orderTimes) placed(id string, i int) {
	if credit, ok := o.other(id, half{i: i}); ok {
		o.end(i, credit.at)
	}
}

func (o *orderTimes) credited(id string, at time.Time) {
	if request, ok := o.other(id, half{at: at}); ok {
		o.end(request.i, at)
	}
}

// other returns an order's other half, or keeps this one until that comes.
func (o *orderTimes) other(id string, this half) (other half, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, ok = o.half[id]; !ok {
		o.half[id] = this
	}
	return other, ok
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

// placeOrders posts c.n orders at latencyRate, after those of the warm-up, and waits until all of them are credited.
func (c *child) placeOrders(ctx context.Context, url string, t *orderTimes) error {
	conns := make([]*httpConn, lanes)
	for i := range conns {
		var err error
		if conns[i], err = dialHTTP(strings.TrimPrefix(url, "http://")); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	post := func(i int) error {
		conn := conns[i%len(conns)] // a lane's own
		if err := conn.post(i); err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(conn.got, []byte(`"id":"`))
		id, _, _ := bytes.Cut(rest, []byte(`"`))
		t.placed(string(id), i)
		return nil
	}
	if err := pace(t.times, 0, latencyWarm, post); err != nil {
		return err
	}
	err := c.measure(func() error {
		if err := pace(t.times, latencyWarm, len(t.took), post); err != nil {
			return err
		}
		return t.wait(ctx)
	})
	c.latencies = t.took[latencyWarm:]
	return err
}
