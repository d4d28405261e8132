package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/outbox"
)

// Redis is away when the rows come, and nothing new comes when it is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	relay := w.start(t, outbox.RelayConfig{})
	w.add(t, eventIDs(0, 30)...)
	relay.Wake()
	waitUntil(t, "the relay finds the broker away", func() bool { return relay.CheckBroker() != nil })
	if err := relay.Check(); err != nil {
		t.Errorf("Check while the broker is away = %v, want nil", err)
	}
	waitUntil(t, "it has tried some times", func() bool { return w.published() > 8 })
	w.mu.Lock()
	if w.batches > w.calls/2+1 {
		t.Errorf("%d of %d calls had events: it looked for a bad row while nobody was there", w.batches, w.calls)
	}
	w.mu.Unlock()
	if err := w.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w.wantEntries(t, eventIDs(0, 30))
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	waitUntil(t, "the relay finds it back", func() bool { return relay.CheckBroker() == nil })
	if n := strings.Count(w.log.String(), "\n"); n > 3 {
		t.Errorf("%d log lines, want one for the outage and one for its end:\n%s", n, w.log)
	}
}

// An outage is met with growing waits: some tries, not thousands.
func TestOutageIsCalm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(func(context.Context, []broker.Event) error { return broker.ErrFull })
	relay := w.start(t, outbox.RelayConfig{})
	w.add(t, "a")
	stop := time.After(3 * time.Second)
	for waking := true; waking; {
		select {
		case <-stop:
			waking = false
		case <-time.After(time.Millisecond):
			relay.Wake()
		}
	}
	if n := w.published(); n < 4 || n > 20 {
		t.Errorf("%d tries in 3 s, want a few", n)
	}
	if n := strings.Count(w.log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines, want 1:\n%s", n, w.log)
	}
	w.hook(nil)
	w.wantEntries(t, []string{"a"})
}

// A frozen Redis holds nothing open in Postgres.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, outbox.RelayConfig{PublishTimeout: 300 * time.Millisecond})
	w.add(t, "before")
	relay.Wake()
	w.waitPublished(t)
	if err := w.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	defer w.redis.Resume()
	w.add(t, eventIDs(0, 30)...)
	relay.Wake()
	calls := w.published()
	for w.published() < calls+4 {
		var open, connections int
		w.query(t, &open, `
			select count(*) from pg_stat_activity
			where datname = current_database() and usename = 'orders' and state like 'idle in transaction%'`)
		w.query(t, &connections, `select count(*) from pg_stat_activity where datname = current_database() and usename = 'orders'`)
		if open > 0 || connections > 5 {
			t.Fatalf("%d transactions are open, %d connections", open, connections)
		}
		w.add(t, "during"+time.Now().String()) // the table is free
	}
	if err := w.redis.Resume(); err != nil {
		t.Fatal(err)
	}
	w.wantAll(t, eventIDs(0, 30))
	w.waitPublished(t)
}

// All of the relay's connections are cut, its listener's too: it goes on, and hears again.
func TestConnectionsTerminated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, never)
	listening := func() bool {
		var n int
		w.query(t, &n, `select count(*) from pg_stat_activity where datname = current_database() and query = 'listen outbox_relay'`)
		return n == 1
	}
	waitUntil(t, "it listens", listening)
	w.exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = 'orders'`)
	w.pool.Reset()
	waitUntil(t, "it listens again", listening)
	w.add(t, eventIDs(0, 5)...)
	w.exec(t, `select pg_notify('outbox_relay', '')`)
	w.wantEntries(t, eventIDs(0, 5))
}

// Published, then not marked (the table is locked): the relay remembers and does not publish again.
func TestPublishedNotMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := w.connect(t, "orders", func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["lock_timeout"] = "100ms" })
	w.add(t, eventIDs(0, 10)...)
	tx, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `lock table outbox in share row exclusive mode`); err != nil {
		t.Fatal(err)
	}
	w.startOn(t, pool, outbox.RelayConfig{Sweep: 20 * time.Millisecond})
	w.wantEntries(t, eventIDs(0, 10))
	waitUntil(t, "marking failed", func() bool { return strings.Contains(w.log.String(), "mark 10 events") })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitPublished(t)
	w.wantEntries(t, eventIDs(0, 10))
}

// With nothing to publish the relay finds the broker away, and back, by asking.
func TestBrokerAwayInQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(func(context.Context, []broker.Event) error { return errors.New("so says the test") })
	relay := w.start(t, outbox.RelayConfig{Sweep: 20 * time.Millisecond})
	waitUntil(t, "it is found away", func() bool { return relay.CheckBroker() != nil })
	w.hook(nil)
	waitUntil(t, "it is found back", func() bool { return relay.CheckBroker() == nil })
}

// One replica cannot reach the broker, and does not keep another, that can, from it.
func TestBrokerAwayForOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, eventIDs(0, 20)...)
	cut, _ := w.runTo(t, unreachable{}, w.connect(t, "orders", nil), outbox.RelayConfig{Sweep: 20 * time.Millisecond})
	waitUntil(t, "it has the lease, and tries", func() bool { return cut.CheckBroker() != nil })
	w.start(t, outbox.RelayConfig{Sweep: 20 * time.Millisecond})
	w.wantEntries(t, eventIDs(0, 20))
}

// unreachable is a broker as one sees it whose network is cut.
type unreachable struct{}

func (unreachable) Publish(context.Context, []broker.Event, broker.Position) (broker.Receipt, error) {
	return broker.Receipt{}, errors.New("dial tcp: so says the test")
}

// A full stream: the rows wait, and go out once there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	small, err := redisstream.NewPublisher(w.redis.Options(), redisstream.PublisherConfig{Stream: stream, MaxLen: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { small.Close() })
	w.publisher = small
	cfg := outbox.RelayConfig{Sweep: 100 * time.Millisecond, BatchSize: 10}
	relay := w.start(t, cfg)
	w.add(t, eventIDs(0, 10)...)
	relay.Wake()
	w.wantEntries(t, eventIDs(0, 10))
	waitUntil(t, "the stream is full", func() bool {
		w.add(t, "x"+time.Now().String())
		relay.Wake()
		return relay.CheckBroker() != nil
	})
	if err := relay.Check(); err != nil {
		t.Errorf("Check = %v, want nil", err)
	}
	if err := w.client.XTrimMaxLen(t.Context(), stream, 0).Err(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "all went out", func() bool {
		w.client.XTrimMaxLen(t.Context(), stream, 0)
		var n int
		w.query(t, &n, `select count(*) from outbox where published_at is null`)
		return n == 0
	})
}

// The answer is lost after the broker has taken the events: they go out again with the same ids.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var n atomic.Int64
	relay, _ := w.runTo(t, lostAnswers{w, &n}, w.pool, outbox.RelayConfig{Sweep: 50 * time.Millisecond})
	want := eventIDs(0, 20)
	for _, id := range want {
		w.add(t, id)
		relay.Wake()
		w.waitPublished(t)
	}
	if repeats := w.wantAll(t, want); repeats == 0 {
		t.Error("no answer was lost")
	}
}

// lostAnswers loses every fifth.
type lostAnswers struct {
	broker.Publisher
	n *atomic.Int64
}

func (l lostAnswers) Publish(ctx context.Context, events []broker.Event, known broker.Position) (broker.Receipt, error) {
	receipt, err := l.Publisher.Publish(ctx, events, known)
	if len(events) > 0 && l.n.Add(1)%5 == 0 {
		return broker.Receipt{}, context.DeadlineExceeded
	}
	return receipt, err
}

func TestCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay, err := outbox.NewRelay(w.pool, w, w.config(never))
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.Check(); err == nil || !strings.Contains(err.Error(), "no turn yet") {
		t.Errorf("Check before Run = %v", err)
	}
	w.exec(t, `alter table outbox rename to elsewhere`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	waitUntil(t, "Check says why", func() bool {
		err := relay.Check()
		return err != nil && strings.Contains(err.Error(), "outbox") && strings.Contains(err.Error(), "42P01")
	})
	w.exec(t, `alter table elsewhere rename to outbox`)
	waitUntil(t, "Check is content", func() bool { return relay.Check() == nil })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
