package main

import (
	"context"
	"fmt"

	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	latencyRate = 500 // messages a second
	latencyN    = 5 * latencyRate
	latencyWarm = latencyRate // published before the clock runs, so that connections, statements and caches are there
)

// stopwatch takes each message's time from just before it is published until its handler starts.
type stopwatch struct {
	began   time.Time
	sent    []atomic.Int64 // nanoseconds since began
	took    []atomic.Int64
	handled *tally
}

// newStopwatch is for n messages and those of the warm-up.
func newStopwatch(n int) *stopwatch {
	n += latencyWarm
	return &stopwatch{began: time.Now(), sent: make([]atomic.Int64, n), took: make([]atomic.Int64, n), handled: newTally(n)}
}

// handle is the whole handler. It is given the event's id.
func (w *stopwatch) handle(id string) error {
	now := time.Since(w.began)
	i, err := eventIndex(id)
	if err == nil {
		w.took[i].Store(int64(now) - w.sent[i].Load())
	}
	return w.handled.count(err)
}

// run publishes at latencyRate, stops the consumer after the last message, and keeps the times.
func (w *stopwatch) run(ctx context.Context, c *child, send func(ctx context.Context, i int, data []byte) error, stop func() error) error {
	orders := orderPayloads()
	publish := func(from, to int) error {
		return w.publish(ctx, from, to, func(ctx context.Context, i int) error { return send(ctx, i, orders[i%len(orders)]) })
	}
	if err := publish(0, latencyWarm); err != nil {
		return err
	}
	err := c.measure(func() error {
		if err := publish(latencyWarm, len(w.sent)); err != nil {
			return err
		}
		return w.handled.wait(ctx)
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	for i := latencyWarm; i < len(w.took); i++ {
		c.latencies = append(c.latencies, time.Duration(w.took[i].Load()))
	}
	return w.handled.exact()
}

// publish sends each message at its time by the clock, in a goroutine of its own, so that a slow one does not hold up those
// behind it.
func (w *stopwatch) publish(ctx context.Context, from, to int, send func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := from; i < to; i++ {
		time.Sleep(time.Until(began.Add(time.Duration(i-from) * time.Second / latencyRate)))
		group.Go(func() error {
			w.sent[i].Store(int64(time.Since(w.began)))
			return send(ctx, i)
		})
	}
	return group.Wait()
}

// warmed holds to the messages of the warm-up too.
func warmed(verify func(context.Context, *servers, int) error) func(context.Context, *servers, int) error {
	return func(ctx context.Context, s *servers, n int) error { return verify(ctx, s, n+latencyWarm) }
}

// eventIndex is the i of eventID(i).
func eventIndex(id string) (int, error) {
	if len(id) != len(eventID(0)) {
		return 0, fmt.Errorf("event id %q: not one of ours", id)
	}
	i, err := strconv.ParseInt(id[len(id)-12:], 16, 32)
	return int(i), err
}
