package redisstream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// addAs appends an entry with an id of the test's choice.
func (w *world) addAs(id, event string) {
	w.Helper()
	if err := w.client.Do(context.Background(), "XADD", testStream, id, "id", event, "type", "t", "data", "{}").Err(); err != nil {
		w.Fatal(err)
	}
}

// TestSameIDWhileTheOldOneIsHeld: the new stream's entry has the id of an old one that is running, queued or waiting. It is
// taken for the same and acknowledged with the old one's work.
func TestSameIDWhileTheOldOneIsHeld(t *testing.T) {
	t.Parallel()
	for _, mood := range []string{"running", "waiting"} {
		t.Run(mood, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addAs("5-1", "old")
			started, finish := make(chan struct{}), make(chan struct{})
			var once, ranNew atomic.Bool
			cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
				if d.ID == "new" {
					ranNew.Store(true)
					return nil
				}
				if once.CompareAndSwap(false, true) {
					close(started)
					if mood == "waiting" {
						return broker.Defer(2 * time.Second)
					}
				}
				<-finish
				return nil
			})
			cfg.ClaimIdle = 5 * time.Second // the default: the renewal does not meet it at once
			w.start(cfg)
			<-started
			w.client.Del(context.Background(), testStream)
			w.addAs("5-1", "new")
			w.eventually("the new one was read", func() bool {
				groups := w.client.XInfoGroups(context.Background(), testStream).Val()
				return len(groups) == 1 && groups[0].LastDeliveredID == "5-1"
			})
			close(finish)
			w.eventually("all is acknowledged", w.settled)
			if !ranNew.Load() {
				t.Error("the new event was acknowledged and never run: lost")
			}
		})
	}
}

// TestAckInFlightWhenTheGroupIsLost: the answer to an XACK does not come, and meanwhile the group is found to be gone. What is
// put back then is of the old group, and must not be sent in the new one.
func TestAckInFlightWhenTheGroupIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	var slow atomic.Bool
	c, err := NewConsumer(w.late("xack", answerTime+2*time.Second, &slow), w.config(func(context.Context, *broker.Delivery) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.open(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	w.addAs("5-1", "old")
	if err := errors.Join(s.makeGroup(ctx), s.readNew(ctx, 1)); err != nil {
		t.Fatal(err)
	}
	s.ack(s.table.queue.take())
	slow.Store(true)
	flushed := make(chan error)
	go func() { flushed <- s.flush(ctx) }()
	w.eventually("the XACK has arrived", func() bool { return w.pending() == 0 })
	w.client.Del(ctx, testStream)
	if err := s.makeGroup(ctx); err != nil { // as the reader does
		t.Fatal(err)
	}
	w.addAs("5-1", "new")
	w.ghost("two", 1)
	if err := <-flushed; err == nil {
		t.Fatal("flushed, want no answer in time")
	}
	if err := s.flush(ctx); err != nil { // as sendAcks does
		t.Fatal(err)
	}
	if w.pending() != 1 {
		t.Error("an ack of the old group went to an entry of the new one")
	}
}

// TestStreamGoneInAnOutage: all that is queued is dropped while the consumer is paused for an outage. Nobody tells the
// reader that there is room.
func TestStreamGoneInAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var down atomic.Bool
	down.Store(true)
	var met, good atomic.Int64
	w.add(8)
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if down.Load() {
			met.Add(1)
			return broker.Unavailable(errors.New("connection refused"))
		}
		good.Add(1)
		return nil
	})
	w.start(cfg)
	w.eventually("paused for long", func() bool { return met.Load() >= 8+5 })
	w.client.Del(context.Background(), testStream)
	w.eventually("the group is made again", func() bool { return w.pending() == 0 })
	down.Store(false)
	sleep(context.Background(), 3*time.Second) // longer than any pause
	w.add(5)
	w.eventually("the new ones are done", func() bool { return good.Load() >= 5 && w.settled() })
}

// TestReaderLeavesADemotedServer: the address points to another server from now on, as a name or a virtual address does
// after a failover, and the old server became a replica: it answers READONLY on the connections that it still has.
func TestReaderLeavesADemotedServer(t *testing.T) {
	t.Parallel()
	old, promoted := newWorld(t), newWorld(t)
	l, opts := old.link()
	var n atomic.Int64
	busy, goOn := make(chan struct{}), make(chan struct{})
	cfg := old.config(func(context.Context, *broker.Delivery) error {
		if n.Add(1) == 1 {
			close(busy)
			<-goOn
		}
		return nil
	})
	cfg.Concurrency = 1
	old.behind(opts, cfg)
	old.add(1)
	<-busy // so that the reader waits for room and not in a blocked read, which would be ended by the server
	sleep(context.Background(), 2*block)
	l.Target(promoted.server.Addr())
	if err := old.client.Do(context.Background(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	promoted.add(5)
	close(goOn)
	old.eventually("the five at the promoted server are done", func() bool { return n.Load() == 6 })
}

// TestOwnOlderConnectionIsNoTwin: after all connections were cut, one that is being made (its CLIENT INFO is on the way) is
// older than the one that looks at CLIENT LIST. It is this consumer's own.
func TestOwnOlderConnectionIsNoTwin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var slow atomic.Bool
	var o overlap
	cfg := w.config(func(ctx context.Context, d *broker.Delivery) error { return o.run(ctx, d, 4*time.Second) })
	cfg.ClaimIdle = time.Minute // no heartbeat: only the connections made below
	c, _ := w.behind(w.late("\r\nclient\r\n$4\r\ninfo\r\n", 2*time.Second, &slow), cfg)
	w.add(1)
	w.eventually("it is running", func() bool { return w.pending() == 1 })
	s := c.current.Load()
	slow.Store(true)
	w.client.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes")
	go s.cmds.Ping(context.Background()) // any of the session's goroutines
	sleep(context.Background(), 3*time.Second)
	if s.nameLost.Load() || c.current.Load() != s {
		t.Error("the consumer took its own connection for another consumer of its name, and gave up what it held")
	}
}

// TestSameIDGroupMadeByAnother: another consumer made the group of the new stream, so this one meets no NOGROUP; the old entry's XACK hits the new one.
func TestSameIDGroupMadeByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	w.addAs("5-1", "old")
	started, finish := make(chan struct{}), make(chan struct{})
	var tries, doneNew atomic.Int64
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error {
		if d.ID == "new" {
			if tries.Add(1) == 1 {
				return errors.New("fails once")
			}
			doneNew.Add(1)
			return nil
		}
		close(started)
		<-finish
		return nil
	})
	cfg.ClaimIdle, cfg.RetryMin, cfg.RetryMax = 2*time.Second, 4*time.Second, 4*time.Second
	w.start(cfg)
	<-started
	_, err := w.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, testStream)
		p.Do(ctx, "XADD", testStream, "5-1", "id", "new", "type", "t", "data", "{}")
		p.XGroupCreate(ctx, testStream, testGroup, "0")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the new one was tried", func() bool { return tries.Load() == 1 })
	sleep(ctx, 100*time.Millisecond)
	close(finish)
	sleep(ctx, 9*time.Second)
	t.Logf("pending %d, tries %d, done %d", w.pending(), tries.Load(), doneNew.Load())
	if doneNew.Load() == 0 && w.pending() == 0 {
		t.Error("the new event was acknowledged and never done: lost")
	}
}
