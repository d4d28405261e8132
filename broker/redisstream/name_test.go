package redisstream

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// TestTwinAfterRestart: after Redis restarts, connection ids begin again, and a twin's id is one that this consumer had on the old server.
func TestTwinAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	a, err := NewConsumer(w.server.Options(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	sa, err := a.open(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer sa.close()
	_ = sa.makeGroup(ctx)
	_ = sa.readNew(ctx, 1)
	for range 3 { // its pool, as far as a working consumer fills it
		cn := sa.cmds.Conn()
		_ = cn.Ping(ctx)
		defer cn.Close()
	}
	t.Logf("A's connections on the old server: %v", sa.plate.own)
	// A is frozen; Redis restarts; another process with the same name starts.
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Restart(); err != nil {
		t.Fatal(err)
	}
	b, _ := NewConsumer(w.server.Options(), cfg)
	var sb *session
	for range 20 {
		if sb, err = b.open(ctx, "one"); err == nil {
			break
		}
		sleep(ctx, 100*time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer sb.close()
	t.Logf("B's connections on the new server: %v", sb.plate.own)
	// A goes on: it connects again and looks at the name.
	for range 20 {
		if err = sa.cmds.Ping(ctx).Err(); err == nil {
			break
		}
	}
	errA, errB := sa.plate.check(ctx, sa.cmds, false), sb.plate.check(ctx, sb.cmds, false)
	t.Logf("A: %v (own %v), B: %v", errA, sa.plate.own, errB)
	if errA == nil && errB == nil {
		t.Error("two live consumers hold one name")
	}
}

// TestTwinBetweenIDAndName: A was stopped between CLIENT INFO and CLIENT SETNAME; B took the name meanwhile.
func TestTwinBetweenIDAndName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	cfg := w.config(func(context.Context, *broker.Delivery) error { return nil })
	var slow atomic.Bool
	slow.Store(true)
	a, _ := NewConsumer(w.late("\r\nclient\r\n$4\r\ninfo\r\n", 2*time.Second, &slow), cfg) // the answer to CLIENT INFO is late
	type opened struct {
		s   *session
		err error
	}
	first := make(chan opened)
	go func() { s, err := a.open(ctx, "one"); first <- opened{s, err} }()
	sleep(ctx, 500*time.Millisecond)
	b, _ := NewConsumer(w.server.Options(), cfg)
	sb, err := b.open(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer sb.close()
	_ = sb.makeGroup(ctx)
	_ = sb.readNew(ctx, 1) // its reading connection is made too
	if err := sb.plate.check(ctx, sb.cmds, false); err != nil {
		t.Fatal(err)
	}
	got := <-first
	t.Logf("A: %v; B.renamed %v", got.err, sb.renamed.Swap(false))
	if got.err == nil {
		defer got.s.close()
		t.Error("A took a name that a live consumer had; B has nothing to make it look again")
	}
}

// TestTwinRunsTwiceAtOnce: the same with whole consumers: the entry that B runs is run by A as well.
func TestTwinRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	var now, most atomic.Int64
	cfg := w.config(func(ctx context.Context, d *broker.Delivery) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		sleep(ctx, 4*time.Second)
		return nil
	})
	cfg.ClaimIdle = 5 * time.Second // the default
	var slow atomic.Bool
	slow.Store(true)
	a, _ := w.behind(w.late("\r\nclient\r\n$4\r\ninfo\r\n", 2500*time.Millisecond, &slow), cfg)
	sleep(context.Background(), 300*time.Millisecond)
	b, _ := w.behind(w.server.Options(), cfg)
	sleep(context.Background(), 4*time.Second)
	sa, sb := a.current.Load(), b.current.Load()
	t.Logf("A is %s, B is %s, B lost its name: %t; at once: %d", sa.name, sb.name, sb.nameLost.Load(), most.Load())
	if most.Load() > 1 {
		t.Error("one entry was run twice at once")
	}
}
