package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/migrations"
	"example.com/orderfanout/outbox"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const stream = "orders"

// patience is how long a test waits for what it expects, on a machine that may be busy.
const patience = time.Minute

// never sweeps: what goes out was woken.
var never = outbox.RelayConfig{Sweep: time.Hour}

// world is a database, a Redis and the publisher between them.
type world struct {
	url       string
	owner     *pgxpool.Pool // may do all
	pool      *pgxpool.Pool // as the orders service
	redis     *localserver.Redis
	client    *redis.Client
	publisher *redisstream.Publisher
	log       *syncBuffer

	mu      sync.Mutex
	before  func(context.Context, []broker.Event) error
	calls   int
	batches int // calls with events
	relays  []*outbox.Relay
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, servertest.Redis(t))
}

// newWorldOfItsOwn has a Postgres that the test may kill. It keeps what was committed without waiting for the disk in its own memory.
func newWorldOfItsOwn(t testing.TB) (*world, *localserver.Postgres) {
	t.Helper()
	server := servertest.Postgres(t, "wal_writer_delay=10000")
	if err := migrations.Apply(t.Context(), server.URL(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return newWorldIn(t, servertest.Redis(t), server.URL()), server
}

func newWorldOn(t testing.TB, server *localserver.Redis) *world {
	t.Helper()
	return newWorldIn(t, server, servertest.Database(t))
}

func newWorldIn(t testing.TB, server *localserver.Redis, database string) *world {
	t.Helper()
	w := &world{url: database, redis: server, log: &syncBuffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the relays logged:\n%s", w.log)
		}
	})
	w.owner = connect(t, w.url, nil)
	w.pool = w.connect(t, "orders", nil)
	w.client = redis.NewClient(server.Options())
	t.Cleanup(func() { w.client.Close() })
	publisher, err := redisstream.NewPublisher(server.Options(), redisstream.PublisherConfig{Stream: stream})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { publisher.Close() })
	w.publisher = publisher
	return w
}

// Publish makes the world a broker.Publisher: the real one behind the hook.
func (w *world) Publish(ctx context.Context, events []broker.Event, known broker.Position) (broker.Receipt, error) {
	w.mu.Lock()
	before := w.before
	w.calls++
	if len(events) > 0 {
		w.batches++
	}
	w.mu.Unlock()
	if before != nil {
		if err := before(ctx, events); err != nil {
			return broker.Receipt{}, err
		}
	}
	return w.publisher.Publish(ctx, events, known)
}

// hook is called before each Publish, which fails with its error.
func (w *world) hook(before func(context.Context, []broker.Event) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// holdFirst makes the next Publish with events wait until leave is called; entered tells that it waits.
func (w *world) holdFirst() (entered <-chan struct{}, leave func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var first sync.Once
	held := func() (mine bool) { first.Do(func() { mine = true }); return mine }
	w.hook(func(_ context.Context, events []broker.Event) error {
		if len(events) > 0 && held() {
			close(in)
			<-out
		}
		return nil
	})
	return in, sync.OnceFunc(func() { close(out) })
}

// published counts the calls of Publish.
func (w *world) published() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *world) connect(t testing.TB, role string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return connect(t, servertest.DatabaseAs(t, w.url, role), change)
}

func connect(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (w *world) config(cfg outbox.RelayConfig) outbox.RelayConfig {
	cfg.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	return cfg
}

// start runs a relay until the test ends.
func (w *world) start(t testing.TB, cfg outbox.RelayConfig) *outbox.Relay {
	t.Helper()
	return w.startOn(t, w.pool, cfg)
}

func (w *world) startOn(t testing.TB, pool *pgxpool.Pool, cfg outbox.RelayConfig) *outbox.Relay {
	t.Helper()
	relay, _ := w.run(t, pool, cfg)
	return relay
}

// run runs a relay until end is called, or the test ends. What end returns is closed when Run has returned.
func (w *world) run(t testing.TB, pool *pgxpool.Pool, cfg outbox.RelayConfig) (relay *outbox.Relay, end func() <-chan struct{}) {
	t.Helper()
	return w.runTo(t, w, pool, cfg)
}

// runTo is run with another publisher.
func (w *world) runTo(t testing.TB, publisher broker.Publisher, pool *pgxpool.Pool, cfg outbox.RelayConfig) (relay *outbox.Relay, end func() <-chan struct{}) {
	t.Helper()
	relay, err := outbox.NewRelay(pool, publisher, w.config(cfg))
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.relays = append(w.relays, relay)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := relay.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	end = func() <-chan struct{} { cancel(); return done }
	t.Cleanup(func() { <-end() })
	return relay, end
}

func newEvent(id string) broker.Event {
	return broker.Event{
		ID: id, Source: "/test", Type: "thing.done.v1", Time: time.Now(), Subject: "thing-" + id,
		PartitionKey: "p", DataContentType: "application/json", Data: []byte(`{"id":"` + id + `"}`),
	}
}

// eventIDs are n ids from first on.
func eventIDs(first, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%06d", first+i)
	}
	return ids
}

// add commits events with these ids.
func (w *world) add(t testing.TB, ids ...string) {
	t.Helper()
	events := make([]broker.Event, len(ids))
	for i, id := range ids {
		events[i] = newEvent(id)
	}
	w.addEvents(t, events...)
}

func (w *world) addEvents(t testing.TB, events ...broker.Event) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, events...) })
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := w.owner.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) query(t testing.TB, into any, sql string, args ...any) {
	t.Helper()
	if err := w.owner.QueryRow(t.Context(), sql, args...).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// entries are the event ids in the stream.
func (w *world) entries(t testing.TB) []string {
	t.Helper()
	messages, err := w.client.XRange(t.Context(), stream, "-", "+").Result()
	if err != nil {
		return nil // it is away, or loads
	}
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i], _ = m.Values["id"].(string)
	}
	return ids
}

// wantEntries waits until the stream has these events and no others, in this order.
func (w *world) wantEntries(t testing.TB, want []string) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("%d entries are in the stream", len(want)), func() bool { return len(w.entries(t)) >= len(want) })
	if got := w.entries(t); !slices.Equal(got, want) {
		t.Errorf("%d entries in the stream, want %d:\n got %q\nwant %q", len(got), len(want), got, want)
	}
}

// wantAll waits until the stream has each of these events at least once, and returns how many are repeats.
func (w *world) wantAll(t testing.TB, want []string) (repeats int) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("all %d events are in the stream", len(want)), func() bool {
		set := make(map[string]bool)
		for _, id := range w.entries(t) {
			set[id] = true
		}
		for _, id := range want {
			if !set[id] {
				return false
			}
		}
		return true
	})
	return len(w.entries(t)) - len(want)
}

// waitPublished waits until no row waits.
func (w *world) waitPublished(t testing.TB) {
	t.Helper()
	waitUntil(t, "no row is unpublished", func() bool {
		var n int
		w.query(t, &n, `select count(*) from outbox where published_at is null`)
		return n == 0
	})
}

// waitTurn waits until each relay has had a turn.
func (w *world) waitTurn(t testing.TB) {
	t.Helper()
	waitUntil(t, "each relay has had a turn", func() bool {
		return !slices.ContainsFunc(w.relays, func(r *outbox.Relay) bool { return r.Check() != nil })
	})
}

// waitIdle waits until the lease is nobody's, and no connection of orders is busy.
func (w *world) waitIdle(t testing.TB) {
	t.Helper()
	waitUntil(t, "the relay is idle", func() bool {
		var idle bool
		w.query(t, &idle, `
			select not exists (select from outbox_relay where expires_at > clock_timestamp())
			   and not exists (select from pg_stat_activity
			                   where datname = current_database() and usename = 'orders' and state <> 'idle')`)
		return idle
	})
}

// listen listens where the relays do; heard waits until one of them has said something since.
func (w *world) listen(t testing.TB) (heard func() error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `listen outbox_relay`); err != nil {
		t.Fatal(err)
	}
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		return err
	}
}

// waitLocked waits until some session waits for a lock.
func (w *world) waitLocked(t testing.TB) {
	t.Helper()
	waitUntil(t, "somebody waits for a lock", func() bool {
		var waiting bool
		w.query(t, &waiting, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
		return waiting
	})
}

func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
