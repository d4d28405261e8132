package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// A batch with all in it: new ones, several of one customer, one from before, one twice, garbage.
func TestBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := placed(t, "ada", 1000)
	w.mustHandle(t, old)

	first, second, small, twice := placed(t, "ada", 250), placed(t, "ada", 199), placed(t, "bob", 99), placed(t, "cy", 1_000_000_000)
	oldAgain, twiceAgain := again(old), again(twice)
	garbage := []*broker.Delivery{
		delivery("no-json", []byte("{")),
		delivery("no-order", []byte(`{"id":"x"}`)),
		delivery("no-uuid", []byte(strings.Replace(string(placed(t, "ada", 100).Data), `"id":"`, `"id":"x`, 1))),
		delivery("nul", []byte(strings.Replace(string(placed(t, "ada", 100).Data), `"ada"`, `"a\u0000da"`, 1))),
		delivery("long", placed(t, strings.Repeat("x", 300), 100).Data),
		delivery("id-\xff", placed(t, "ada", 100).Data),
		delivery(strings.Repeat("x", 3000), placed(t, "ada", 100).Data),
	}
	good := []*broker.Delivery{first, oldAgain, second, twice, small, twiceAgain}
	batch := slices.Concat(garbage[:3], good, garbage[3:])
	w.mustHandle(t, batch...)

	for _, d := range good {
		if d.Verdict() != nil {
			t.Errorf("event %s was rejected: %v", d.ID, d.Verdict())
		}
		if want := d == oldAgain || d == twiceAgain; d.IsDuplicate() != want {
			t.Errorf("event %s: duplicate %t, want %t", d.ID, d.IsDuplicate(), want)
		}
	}
	for _, d := range garbage {
		if !broker.IsPermanent(d.Verdict()) || d.IsDuplicate() {
			t.Errorf("event %.20q: verdict %v, duplicate %t; want a permanent one", d.ID, d.Verdict(), d.IsDuplicate())
		}
	}
	if got, want := w.balances(t), (map[string]int64{"ada": 10 + 2 + 1, "bob": 0, "cy": 10_000_000}); !maps.Equal(got, want) {
		t.Errorf("balances %v, want %v", got, want)
	}
	if ledger, markers := w.rows(t, "bonus_ledger"), w.rows(t, "processed"); ledger != 5 || markers != 5 {
		t.Errorf("%d ledger rows and %d markers, want 5 each: one for zero points too", ledger, markers)
	}
	w.mustHandle(t, garbage...) // nothing but garbage
	w.mustHandle(t)
}

// Markers are gone after PROCESSED_RETENTION, the ledger is not: a replay from before changes nothing.
func TestReplayAfterRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, other := placed(t, "ada", 1000), placed(t, "ada", 500)
	w.mustHandle(t, d)
	w.exec(t, `delete from processed`)
	replay := again(d)
	w.mustHandle(t, replay, other)
	if !replay.IsDuplicate() || replay.Verdict() != nil || other.IsDuplicate() {
		t.Errorf("replay: duplicate %t, verdict %v; other: duplicate %t", replay.IsDuplicate(), replay.Verdict(), other.IsDuplicate())
	}
	if got := w.balances(t)["ada"]; got != 15 {
		t.Errorf("balance %d, want 15", got)
	}
}

func TestHugeBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ds := make([]*broker.Delivery, 10_000)
	for i := range ds {
		ds[i] = placed(t, customer(i%1000), 100)
	}
	w.mustHandle(t, ds...)
	balances := w.balances(t)
	for i := range 1000 {
		if balances[customer(i)] != 10 {
			t.Fatalf("%s has %d, want 10", customer(i), balances[customer(i)])
		}
	}
}

// Three replicas at once, over the same customers and in part over the same events, each batch in an order of its own.
func TestReplicasNeverDeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const replicas, rounds, size, customers = 3, 30, 100, 20
	pick := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]int64)
	batches := make([][][]*broker.Delivery, replicas)
	for range rounds {
		shared := make([]*broker.Delivery, size/2)
		for i := range shared {
			c := customer(pick.IntN(customers))
			shared[i] = placed(t, c, 100)
			want[c]++
		}
		for r := range replicas {
			var batch []*broker.Delivery
			for _, d := range shared {
				batch = append(batch, again(d))
			}
			for range size / 2 {
				c := customer(pick.IntN(customers))
				batch = append(batch, placed(t, c, 100))
				want[c]++
			}
			pick.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			batches[r] = append(batches[r], batch)
		}
	}
	var wg sync.WaitGroup
	for r := range replicas {
		h := &handler{store: w.newStore(t, nil)}
		wg.Go(func() {
			for _, batch := range batches[r] {
				if err := h.handle(t.Context(), batch); err != nil {
					t.Errorf("replica %d: %v", r, err)
				}
			}
		})
	}
	wg.Wait()
	if got := w.balances(t); !maps.Equal(got, want) {
		t.Errorf("balances %v, want %v", got, want)
	}
	fresh := 0
	for _, batch := range slices.Concat(batches...) {
		for _, d := range batch {
			if !d.IsDuplicate() {
				fresh++
			}
		}
	}
	if want := w.rows(t, "bonus_ledger"); fresh != want {
		t.Errorf("%d deliveries were told to be new, want %d", fresh, want)
	}
}

// A batch is credited as a whole or not at all.
func TestBatchIsAtomic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `alter table bonus_accounts add check (balance < 100)`)
	if err := w.handle(placed(t, "ada", 500), placed(t, "bob", 100_000)); err == nil || broker.IsUnavailable(err) {
		t.Errorf("err = %v, want one that counts", err)
	}
	if n := w.rows(t, "processed") + w.rows(t, "bonus_ledger") + w.rows(t, "bonus_accounts"); n != 0 {
		t.Errorf("%d rows were left behind", n)
	}
}

// The schema changes under a running service: no event is refused.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustHandle(t, placed(t, "ada", 100))
	changes := []string{
		`alter table processed add column note text`,
		`alter table bonus_ledger add column note text`,
		`alter table bonus_ledger alter column event_id type varchar(300)`,
		`alter table bonus_accounts alter column balance type numeric`,
		`alter table bonus_accounts alter column balance type bigint`,
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var credited int64 = 1
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			d := placed(t, "ada", 100)
			err := w.handle(d)
			// A table that is being rewritten is locked, and a deadlock with the one who changes it is no event's fault.
			if _, deferred := broker.DeferredFor(err); deferred || broker.IsUnavailable(err) {
				continue
			}
			if err != nil {
				t.Error(err)
			}
			credited++
		}
	})
	for _, change := range changes {
		w.exec(t, change)
		if _, _, err := w.store.account(t.Context(), "ada", newest, 10); err != nil {
			t.Errorf("after %s: %v", change, err)
		}
	}
	close(stop)
	wg.Wait()
	if got := w.balances(t)["ada"]; got != credited {
		t.Errorf("balance %d, want %d", got, credited)
	}
}

// A handler whose context the consumer has cancelled leaves the verdict to the consumer.
func TestCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := (&handler{store: w.store}).handle(ctx, []*broker.Delivery{placed(t, "ada", 100)})
	if _, deferred := broker.DeferredFor(err); err == nil || deferred || broker.IsUnavailable(err) {
		t.Errorf("err = %v, want the plain error", err)
	}
}

// A Postgres that hangs is away before the handler's time is up.
func TestHangingPostgres(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `lock table processed`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = (&handler{store: w.store}).handle(ctx, []*broker.Delivery{placed(t, "ada", 100)})
	if !broker.IsUnavailable(err) || ctx.Err() != nil {
		t.Errorf("err = %v, context %v; want Unavailable in time", err, ctx.Err())
	}
}
