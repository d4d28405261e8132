package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// lanes are the goroutines of pace.
const lanes = 16

// pace begins latencyRate a second, each at its time however long those before it take, on a few goroutines.
func pace(t *times, from, to int, do func(i int) error) error {
	start := time.Now()
	errs := make(chan error, lanes)
	for lane := range lanes {
		go func() {
			for i := from + lane; i < to; i += lanes {
				due := start.Add(time.Duration(i-from) * time.Second / latencyRate)
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
