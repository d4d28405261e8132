package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// latency: from the call that publishes a message to the start of its handler.
func latency() work {
	return work{
		name: "latency", unit: "messages/s",
		contenders: []contender{
			{name: "ours", settings: "500 a second, one at a time; publisher and consumer in one process, the defaults", n: latencyN, run: oursLatency, verify: warmed(wantDone("bonus"))},
			watermillLatency(), asynqLatency(), riverLatency(),
		},
	}
}

func oursLatency(ctx context.Context, c *child) error {
	p, err := redisstream.NewPublisher(c.options(), redisstream.PublisherConfig{Stream: stream})
	if err != nil {
		return err
	}
	defer p.Close()
	w := newStopwatch(c.n)
	consumer, err := redisstream.NewConsumer(c.options(), redisstream.Config{Stream: stream, Group: "bonus", Name: "one", Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, d *broker.Delivery) error { return w.handle(d.ID) }})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(running) }()
	return w.run(ctx, c, func(ctx context.Context, i int, data []byte) error {
		e := orderEvent(i)
		e.Data = data
		_, err := p.Publish(ctx, []broker.Event{e}, broker.Position{})
		return err
	}, func() error { cancel(); return <-ended })
}

// times are the beginnings and ends of what is timed.
type times struct {
	mu   sync.Mutex
	from []time.Time
	took []time.Duration
	left int
	done chan struct{}
}

func newTimes(n int) *times {
	return &times{from: make([]time.Time, n), took: make([]time.Duration, n), left: n, done: make(chan struct{})}
}

func (t *times) begin(i int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from[i] = at
}

func (t *times) end(i int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.took[i] == 0 {
		t.took[i] = at.Sub(t.from[i])
		if t.left--; t.left == 0 {
			close(t.done)
		}
	}
}

func (t *times) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%d have not ended after a minute", t.left)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pace begins latencyRate a second, each at its time however long those before it take, on a few goroutines.
func (c *child) pace(t *times, do func(i int) error) error {
	const lanes = 16
	start := time.Now()
	errs := make(chan error, lanes)
	for lane := range lanes {
		go func() {
			for i := lane; i < c.n; i += lanes {
				due := start.Add(time.Duration(i) * time.Second / latencyRate)
				time.Sleep(time.Until(due))
				t.begin(i, time.Now())
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range lanes {
		err = errors.Join(err, <-errs)
	}
	return err
}

// endToEnd: from a client's POST /orders to the commit of the bonus.
func endToEnd() work {
	const ours = "ours, orders and bonus"
	return work{
		name: "order to credited", unit: "orders/s",
		contenders: []contender{
			{name: ours, settings: "500 a second over HTTP from 16 clients; until the line that bonus logs after its commit", n: 8 * latencyRate, run: oursEndToEnd, verify: wantCredits},
		},
		goals: []goal{{who: ours, p50: 3, p99: 15}},
	}
}

func oursEndToEnd(ctx context.Context, c *child) error {
	t := newTimes(c.n)
	credited := &creditedLines{at: make(map[string]time.Time), numbers: make(map[string]int), t: t}
	c.output = credited
	url, stopOrders, err := c.service(ctx, "orders")
	if err != nil {
		return err
	}
	_, stopBonus, err := c.service(ctx, "bonus", "LOG_LEVEL=info")
	if err != nil {
		return errors.Join(err, stopOrders())
	}
	conns := make([]*httpConn, 16)
	for i := range conns {
		if conns[i], err = dialHTTP(strings.TrimPrefix(url, "http://")); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	err = c.measure(func() error {
		err := c.pace(t, func(i int) error {
			conn := conns[i%len(conns)] // a lane's own
			if err := conn.post(i); err != nil {
				return err
			}
			_, rest, _ := bytes.Cut(conn.got, []byte(`"id":"`))
			id, _, _ := bytes.Cut(rest, []byte(`"`))
			credited.placed(string(id), i)
			return nil
		})
		if err != nil {
			return err
		}
		return t.wait(ctx)
	})
	c.latencies = t.took
	return errors.Join(err, stopBonus(), stopOrders())
}

// creditedLines reads the log of bonus.
type creditedLines struct {
	t  *times
	mu sync.Mutex
	// An order's line may be here before its answer is.
	at      map[string]time.Time
	numbers map[string]int
	rest    []byte
}

func (l *creditedLines) placed(id string, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at[id]; ok {
		l.t.end(i, at)
		return
	}
	l.numbers[id] = i
}

func (l *creditedLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.line(line)
		l.rest = rest
	}
}

func (l *creditedLines) line(line []byte) {
	var got struct {
		Time    time.Time `json:"time"`
		Outcome string    `json:"outcome"`
		OrderID string    `json:"order_id"`
	}
	if json.Unmarshal(line, &got) != nil || got.Outcome != "done" {
		return
	}
	if i, ok := l.numbers[got.OrderID]; ok {
		l.t.end(i, got.Time)
		return
	}
	l.at[got.OrderID] = got.Time
}
