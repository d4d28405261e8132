package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	if !asked { // its default of 100 takes a quarter of an hour
		checks := "4"
		if testing.Short() {
			checks = "2"
		}
		if err := flag.Set("rapid.checks", checks); err != nil {
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
