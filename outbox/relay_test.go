package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/outbox"
)

func TestPublishesInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, never)
	for i := range 3 {
		w.add(t, eventIDs(i*40, 40)...)
		relay.Wake()
	}
	w.wantEntries(t, eventIDs(0, 120))
	w.waitPublished(t)
	var ok bool
	w.query(t, &ok, `select bool_and(entry_id is not null and published_at >= created_at) from outbox`)
	if !ok {
		t.Error("a row was marked without its entry id")
	}
	if got := relay.Stats(); got.Published != 120 || got.Republished != 0 || got.Parked != 0 {
		t.Errorf("Stats = %+v, want 120 published", got)
	}
}

// A small batch is no limit on how much goes out.
func TestPublishesBatchAfterBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, eventIDs(0, 95)...)
	cfg := never
	cfg.BatchSize = 10
	w.start(t, cfg)
	w.wantEntries(t, eventIDs(0, 95))
}

// Large events end a batch early, and no more than a batch is read at a time. An event that is larger than a batch may be goes out alone.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const mb = 1 << 20
	total := 0
	for i, id := range eventIDs(0, 25) {
		e := newEvent(id)
		e.Data = bytes.Repeat([]byte("x"), mb)
		if i == 0 {
			e.Data = bytes.Repeat([]byte("x"), 5*mb)
		}
		w.addEvents(t, e)
		total += len(e.Data)
	}
	var mu sync.Mutex
	var sizes []int
	w.hook(func(_ context.Context, events []broker.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if len(events) > 0 {
			sizes = append(sizes, len(events))
		}
		return nil
	})
	var read atomic.Int64
	pool := w.connect(t, "orders", func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return countingConn{conn, &read}, err
		}
	})
	w.startOn(t, pool, never)
	w.wantEntries(t, eventIDs(0, 25))
	w.waitPublished(t)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(sizes, []int{1, 4, 4, 4, 4, 4, 4}) {
		t.Errorf("batches of %d, want 1 and six times 4", sizes)
	}
	if got := read.Load(); got > int64(total+mb) {
		t.Errorf("read %d MB for %d MB of events", got/mb, total/mb)
	}
}

// countingConn counts the bytes that are read.
type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A row is committed and the relay is told to end, both in the same moment: nobody else may come for that row.
func TestWokenAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 50 {
		relay, end := w.run(t, w.pool, never)
		waitUntil(t, "it had a turn", func() bool { return relay.Check() == nil })
		w.add(t, eventIDs(i, 1)...)
		relay.Wake()
		<-end()
		if got := len(w.entries(t)); got != i+1 {
			t.Fatalf("%d events were published by the end, want %d", got, i+1)
		}
	}
}

func TestSweepFindsRowsWithoutWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	w.waitTurn(t)
	w.add(t, eventIDs(0, 5)...)
	w.wantEntries(t, eventIDs(0, 5))
}

// Ids are committed out of order: the lower one, committed later, is not passed over.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, never)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Add(t.Context(), tx, newEvent("slow")); err != nil {
		t.Fatal(err)
	}
	w.add(t, "fast")
	relay.Wake()
	w.wantEntries(t, []string{"fast"})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	relay.Wake()
	w.wantEntries(t, []string{"fast", "slow"})
}

// A quiet event costs the relay two round trips to the database, and a turn for nothing one that writes nothing.
func TestQuietEventCostsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var trips atomic.Int64
	counted := w.connect(t, "orders", func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter{&trips} })
	relay := w.startOn(t, counted, never)
	want := int64(0)
	more := func(n int64, what string) {
		t.Helper()
		want += n
		waitUntil(t, what, func() bool { return trips.Load() >= want })
		w.waitIdle(t)
		if got := trips.Load(); got != want {
			t.Fatalf("%s: %d round trips too many", what, got-want)
		}
	}
	more(4, "the first turn, the listener, the turn that it wakes, and the look for old rows")
	var before, after string
	for i := range 5 {
		w.add(t, fmt.Sprint("event", i))
		relay.Wake()
		more(2, "an event is published")
		w.query(t, &before, `select xmin::text from outbox_relay`)
		relay.Wake()
		more(1, "a turn for nothing is taken")
		w.query(t, &after, `select xmin::text from outbox_relay`)
	}
	if before != after {
		t.Error("a turn for nothing changed the lease")
	}
}

// The schema may change under a running relay.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, never)
	w.add(t, "first")
	relay.Wake()
	w.waitPublished(t)
	for i, change := range []string{
		`alter table outbox add column note text`,
		`alter table outbox alter column subject type varchar(200)`,
		`alter table outbox_relay alter column broker_last type varchar(200)`,
		`alter table outbox alter column source type varchar(100), alter column trace_parent type varchar(100)`,
	} {
		w.exec(t, change)
		w.add(t, fmt.Sprint("after", i))
		relay.Wake()
		w.waitPublished(t)
	}
	if log := w.log.String(); log != "" {
		t.Errorf("the relay complained: %s", log)
	}
}

// A row that was committed while the last turn was under way goes out before the relay ends.
func TestWokenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := w.holdFirst()
	defer leave()
	relay, end := w.run(t, w.pool, never)
	w.add(t, "a")
	relay.Wake()
	<-entered
	w.add(t, "b")
	relay.Wake()
	ended := end()
	leave()
	<-ended
	w.wantEntries(t, []string{"a", "b"})
	w.waitPublished(t)
}

// On its way out a relay sees its batch through and lets the others begin at once.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := w.holdFirst()
	defer leave()
	relay, end := w.run(t, w.pool, never)
	w.add(t, "a")
	relay.Wake()
	<-entered
	ended := end()
	leave()
	<-ended
	w.wantEntries(t, []string{"a"})
	var published, free bool
	w.query(t, &published, `select published_at is not null from outbox`)
	w.query(t, &free, `select expires_at <= clock_timestamp() from outbox_relay`)
	if !published || !free {
		t.Errorf("published %t, lease free %t; want both", published, free)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]outbox.RelayConfig{
		"BatchSize":      {BatchSize: -1},
		"a time":         {Sweep: -1},
		"LeaseTimeout":   {LeaseTimeout: time.Second, PublishTimeout: time.Second},
		"PublishTimeout": {PublishTimeout: time.Hour},
	} {
		if _, err := outbox.NewRelay(nil, nil, cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// counter counts round trips: statements by themselves, and batches.
type counter struct{ n *atomic.Int64 }

func (c counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
