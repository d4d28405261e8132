package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/link"
	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

const (
	machineStream  = "machine"
	machineGroup   = "work"
	machineIdle    = 600 * time.Millisecond
	machineRetries = 3 // attempts of an event that always fails
)

// TestStateMachine drives consumers, a ghost, claims, retries, losses, trimming and restarts in an order that is drawn at
// random, against a real Redis, and then holds what became of every event to the engine's guarantees. More of it:
//
//	go test -run StateMachine -rapid.checks 1000 ./e2e
func TestStateMachine(t *testing.T) {
	t.Parallel()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked { // its default of 100 takes ten minutes
		if err := flag.Set("rapid.checks", "4"); err != nil {
			t.Fatal(err)
		}
	}
	server := servertest.Redis(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t, rt, server)
		defer m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"add":      m.add,
			"add junk": m.addJunk,
			"start":    m.start,
			"start 2":  m.start,
			"drain":    m.drain,
			"crash":    m.crash,
			"ghost":    m.ghostReads,
			"steal":    m.ghostSteals,
			"outage":   m.outage,
			"group":    m.loseGroup,
			"delete":   m.deleteEntry,
			"again":    m.addAgain,
			"cut":      m.cutConnections,
			"restart":  m.restartRedis,
			"trim":     m.trim,
			"":         func(*rapid.T) { time.Sleep(30 * time.Millisecond) },
		})
		m.settle()
		m.judge()
	})
}

// machine is the model: what was put in, and what the handlers have seen.
type machine struct {
	*rapid.T
	tb     testing.TB
	server *localserver.Redis
	client *redis.Client
	live   []*worker
	next   int // of events and consumers

	mu       sync.Mutex
	events   map[string]*fate
	down     bool // the handlers' dependency
	problems []string
	junk     int
	groups   int // times that the group was removed

	junkDeleted int
}

// fate is what became of an event.
type fate struct {
	fails    bool // always
	slow     bool // takes longer than ClaimIdle
	running  int
	done     int
	failures int
	deleted  bool // its entry was deleted before it was acknowledged
	disputed bool // taken from a consumer that was alive, so it may run twice at once
}

// worker is a consumer with its own way to Redis.
type worker struct {
	name  string
	link  *link.Link
	stop  context.CancelFunc
	ended chan struct{}
	dead  chan struct{} // closed when it was crashed: its handlers do no more
}

func newMachine(tb testing.TB, rt *rapid.T, server *localserver.Redis) *machine {
	m := &machine{T: rt, tb: tb, server: server, client: redis.NewClient(server.Options()), events: map[string]*fate{}}
	if err := m.client.FlushAll(context.Background()).Err(); err != nil {
		rt.Fatal(err)
	}
	return m
}

func (m *machine) end() {
	for _, w := range m.live {
		w.stop()
	}
	for _, w := range m.live {
		<-w.ended
		_ = w.link.Close()
	}
	_ = m.client.Close()
}

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

// handle does the work of an event: it takes a moment, and comes to nothing in a worker that has crashed.
func (m *machine) handle(ctx context.Context, w *worker, d *broker.Delivery) error {
	m.mu.Lock()
	f := m.events[d.ID]
	if f == nil {
		m.problems = append(m.problems, "a handler was given "+d.ID+", which nobody added")
		m.mu.Unlock()
		return nil
	}
	if m.down {
		m.mu.Unlock()
		return broker.Unavailable(errors.New("away"))
	}
	f.running++
	if f.running > 1 && !f.disputed {
		m.problems = append(m.problems, d.ID+" runs twice at once")
	}
	m.mu.Unlock()
	alive, takes := true, time.Duration(len(d.ID)%4)*time.Millisecond
	if f.slow {
		takes = 2 * machineIdle
	}
	select {
	case <-w.dead:
		alive = false
	case <-ctx.Done():
	case <-time.After(takes):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.running--; !alive || ctx.Err() != nil {
		return errors.New("cancelled")
	}
	if f.fails {
		if f.failures++; d.Attempt > machineRetries {
			m.problems = append(m.problems, fmt.Sprintf("%s is at its attempt %d of %d", d.ID, d.Attempt, machineRetries))
		}
		return errors.New("always")
	}
	f.done++
	return nil
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

// settle lets one consumer bring everything to its end.
func (m *machine) settle() {
	m.mu.Lock()
	m.down = false
	m.mu.Unlock()
	if len(m.live) == 0 {
		m.startNamed("a", false)
	}
	ctx := context.Background()
	var state string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		groups, err := m.client.XInfoGroups(ctx, machineStream).Result()
		if err == nil && len(groups) == 1 {
			g := groups[0]
			unread := m.client.XRangeN(ctx, machineStream, "("+g.LastDeliveredID, "+", 1).Val()
			if g.Pending == 0 && len(unread) == 0 {
				return
			}
		}
		state = fmt.Sprint(groups, err)
	}
	m.Fatalf("not settled within 30 s: %s", state)
}

// judge holds the fates to the guarantees.
func (m *machine) judge() {
	ctx := context.Background()
	dead, junk := map[string]int{}, 0
	for _, e := range m.client.XRange(ctx, redisstream.DeadKey(machineStream, machineGroup), "-", "+").Val() {
		if e.Values["dead_reason"] == "malformed" {
			junk++
			continue
		}
		id, _ := e.Values["id"].(string)
		dead[id]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, f := range m.events {
		switch {
		case f.fails && f.done > 0:
			m.problems = append(m.problems, id+" was done though it always fails")
		case f.done == 0 && dead[id] == 0 && !f.deleted:
			m.problems = append(m.problems, id+" is lost")
		case !f.fails && dead[id] > 0:
			m.problems = append(m.problems, id+" is a dead letter though it never failed")
		case dead[id] > 1 && !f.disputed:
			m.problems = append(m.problems, id+" is a dead letter twice")
		}
	}
	if m.groups == 0 && (junk > m.junk || junk < m.junk-m.junkDeleted) {
		m.problems = append(m.problems, fmt.Sprintf("%d dead letters for %d malformed entries", junk, m.junk))
	}
	if n := m.client.HLen(ctx, "{"+machineStream+"}:fail:"+machineGroup).Val(); n != 0 && m.groups == 0 {
		m.problems = append(m.problems, fmt.Sprintf("%d failures are left written down", n))
	}
	if len(m.problems) > 0 {
		m.Fatal(strings.Join(m.problems, "\n"))
	}
}
