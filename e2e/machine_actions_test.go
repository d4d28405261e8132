package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/link"
)

// What the machine does. Each action is a method that rapid calls.

func (m *machine) add(rt *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(rt, "events") {
		m.next++
		id := fmt.Sprint("event-", m.next)
		kind := rapid.IntRange(0, 19).Draw(rt, "kind")
		m.put(id, &fate{fails: kind < 2, slow: kind == 2 || kind == 3})
		m.append(id)
	}
}

func (m *machine) put(id string, f *fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events[id] = f
}

func (m *machine) append(id string) {
	err := m.client.XAdd(context.Background(), &redis.XAddArgs{Stream: machineStream, Values: []string{
		"id", id, "type", "thing.done.v1", "time", time.Now().UTC().Format(time.RFC3339Nano), "data", id}}).Err()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *machine) addJunk(*rapid.T) {
	if err := m.client.XAdd(context.Background(), &redis.XAddArgs{Stream: machineStream, Values: []string{"x", "y"}}).Err(); err != nil {
		m.Fatal(err)
	}
	m.junk++
}

// addAgain appends an event that was there before once more.
func (m *machine) addAgain(rt *rapid.T) {
	if m.next == 0 {
		rt.Skip("no event yet")
	}
	id := fmt.Sprint("event-", rapid.IntRange(1, m.next).Draw(rt, "event"))
	m.mu.Lock()
	m.events[id].disputed = true // two entries are two pieces of work
	m.mu.Unlock()
	m.append(id)
}

func (m *machine) start(rt *rapid.T) {
	if len(m.live) == 3 {
		rt.Skip("three are enough")
	}
	m.startNamed(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"), rapid.Bool().Draw(rt, "batch"))
}

func (m *machine) startNamed(name string, batch bool) {
	for _, w := range m.live {
		if w.name == name {
			return
		}
	}
	l, err := link.New(m.server.Addr())
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &worker{name: name, link: l, stop: stop, ended: make(chan struct{}), dead: make(chan struct{})}
	cfg := redisstream.Config{
		Stream: machineStream, Group: machineGroup, Name: name, ClaimIdle: machineIdle, HandlerTimeout: 2 * time.Second,
		RetryMin: 5 * time.Millisecond, RetryMax: 20 * time.Millisecond, MaxAttempts: machineRetries, MaxDeliveries: 1000,
		Concurrency: 4, Logger: slog.New(slog.DiscardHandler),
	}
	if batch {
		cfg.Concurrency, cfg.BatchSize = 2, 8
		cfg.HandleBatch = func(ctx context.Context, ds []*broker.Delivery) error {
			for _, d := range ds {
				d.Reject(m.handle(ctx, w, d))
			}
			return nil
		}
	} else {
		cfg.Handle = func(ctx context.Context, d *broker.Delivery) error { return m.handle(ctx, w, d) }
	}
	opts := m.server.Options()
	opts.Addr = l.Addr()
	c, err := redisstream.NewConsumer(opts, cfg)
	if err != nil {
		m.Fatal(err)
	}
	go func() { defer close(w.ended); _ = c.Run(ctx) }()
	m.live = append(m.live, w)
}

// drain stops a consumer in order.
func (m *machine) drain(rt *rapid.T) {
	w := m.takeLive(rt)
	w.stop()
	select {
	case <-w.ended:
	case <-time.After(10 * time.Second):
		rt.Fatalf("%s has not drained within 10 s", w.name)
	}
	_ = w.link.Close()
}

// crash ends a consumer as kill -9 does: its connections are gone, its handlers finish nothing.
func (m *machine) crash(rt *rapid.T) {
	w := m.takeLive(rt)
	close(w.dead)
	w.link.Cut()
	w.stop()
	<-w.ended
	_ = w.link.Close()
}

func (m *machine) takeLive(rt *rapid.T) *worker {
	if len(m.live) == 0 {
		rt.Skip("none is running")
	}
	i := rapid.IntRange(0, len(m.live)-1).Draw(rt, "consumer")
	w := m.live[i]
	m.live = append(m.live[:i], m.live[i+1:]...)
	return w
}

// ghostReads: a consumer takes entries and is never heard of again.
func (m *machine) ghostReads(rt *rapid.T) {
	_ = m.client.XReadGroup(context.Background(), &redis.XReadGroupArgs{Group: machineGroup, Consumer: "ghost",
		Streams: []string{machineStream, ">"}, Count: rapid.Int64Range(1, 5).Draw(rt, "entries"), Block: time.Millisecond}).Err()
}

// ghostSteals: a consumer takes entries from their owner, who may be alive.
func (m *machine) ghostSteals(rt *rapid.T) {
	ctx := context.Background()
	pending := m.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: machineStream, Group: machineGroup, Start: "-", End: "+",
		Count: rapid.Int64Range(1, 5).Draw(rt, "entries")}).Val()
	for _, p := range pending {
		if e := m.client.XRange(ctx, machineStream, p.ID, p.ID).Val(); len(e) == 1 {
			id, _ := e[0].Values["id"].(string)
			m.mu.Lock()
			if f := m.events[id]; f != nil {
				f.disputed = true
			}
			m.mu.Unlock()
		}
		m.client.XClaim(ctx, &redis.XClaimArgs{Stream: machineStream, Group: machineGroup, Consumer: "ghost", Messages: []string{p.ID}})
	}
}

func (m *machine) outage(*rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = !m.down
}

// loseGroup removes the group: everything that the stream has comes again.
func (m *machine) loseGroup(*rapid.T) {
	m.mu.Lock()
	for _, f := range m.events {
		f.disputed = true
	}
	m.mu.Unlock()
	m.groups++
	m.client.XGroupDestroy(context.Background(), machineStream, machineGroup)
}

// deleteEntry removes an entry by hand.
func (m *machine) deleteEntry(rt *rapid.T) {
	ctx := context.Background()
	entries := m.client.XRangeN(ctx, machineStream, "-", "+", 20).Val()
	if len(entries) == 0 {
		rt.Skip("the stream is empty")
	}
	e := rapid.SampledFrom(entries).Draw(rt, "entry")
	id, _ := e.Values["id"].(string)
	m.mu.Lock()
	if f := m.events[id]; f != nil {
		f.deleted = true
	} else {
		m.junkDeleted++
	}
	m.mu.Unlock()
	m.client.XDel(ctx, machineStream, e.ID)
}

// cutConnections breaks every connection of a consumer; it makes new ones.
func (m *machine) cutConnections(rt *rapid.T) {
	if len(m.live) == 0 {
		rt.Skip("none is running")
	}
	w := rapid.SampledFrom(m.live).Draw(rt, "consumer")
	w.link.Cut()
	w.link.Mend()
}

// restartRedis stops Redis in order, so that it keeps everything: what a killed one has lost is for the publisher to see.
func (m *machine) restartRedis(*rapid.T) {
	if err := m.server.Restart(); err != nil {
		m.Fatal(err)
	}
}

// trim removes what all groups have acknowledged, whatever its age.
func (m *machine) trim(*rapid.T) {
	t, err := redisstream.NewTrimmer(m.client, redisstream.TrimConfig{Stream: machineStream, Groups: []string{machineGroup}, Retention: time.Millisecond, MaxLen: 1,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.Fatal(err)
	}
	_ = t.Trim(context.Background()) // Redis may have just restarted
}
