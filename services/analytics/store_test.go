package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
)

// Random batches with repeats within a batch and over batches, against a model in Go.
func TestSums(t *testing.T) {
	t.Parallel()
	s, m, r := newStore(t), newModel(), rand.New(rand.NewPCG(1, 2))
	events := randomOrders(t, r, 600)
	for range 60 {
		var batch []*broker.Delivery
		fresh := make(map[string]bool)
		for range 1 + r.IntN(40) {
			d := *events[r.IntN(len(events))]
			batch = append(batch, &d)
			if !m.seen[d.ID] {
				fresh[d.ID] = true
			}
		}
		s.mustHandle(t, batch...)
		for _, d := range batch {
			m.add(t, d)
			// Exactly one delivery of a new event is done, all others are duplicates.
			if d.IsDuplicate() == fresh[d.ID] {
				t.Fatalf("%s: duplicate is %t", d.ID, d.IsDuplicate())
			}
			delete(fresh, d.ID)
		}
	}
	m.check(t, s)
	s.mustHandle(t, events...)
	for _, d := range events {
		m.add(t, d)
	}
	m.check(t, s)
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	newModel().check(t, s)
	s.mustHandle(t)
}

// Several workers take the same events, in another order each, at once.
func TestSumsOfManyWorkers(t *testing.T) {
	t.Parallel()
	s, m := newStore(t), newModel()
	events := randomOrders(t, rand.New(rand.NewPCG(3, 4)), 2_000)
	for _, d := range events {
		m.add(t, d)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(w)))
			order := r.Perm(len(events))
			for len(order) > 0 {
				n := min(1+r.IntN(200), len(order))
				var batch []*broker.Delivery
				for _, i := range order[:n] {
					d := *events[i]
					batch = append(batch, &d)
				}
				if err := s.handle(context.Background(), batch); err != nil {
					t.Error(err)
				}
				order = order[n:]
			}
		})
	}
	wg.Wait()
	m.check(t, s)
}

// More events and more articles than one run of the script takes.
func TestBigBatch(t *testing.T) {
	t.Parallel()
	s, m := newStore(t), newModel()
	var batch []*broker.Delivery
	at := time.Now()
	for i := range 2_500 {
		o := order(fmt.Sprintf("c-%d", i), "EUR", "a", 1, 1, at)
		if i < 250 {
			o.Items = nil
			for k := range 100 {
				o.Items = append(o.Items, event.Item{SKU: fmt.Sprintf("sku-%d-%d", i, k), Quantity: 1, UnitPrice: 1})
			}
			o.Total = 100
		}
		batch = append(batch, placed(t, idAt(at), o))
	}
	for _, d := range batch {
		m.add(t, d)
	}
	s.mustHandle(t, batch...)
	m.check(t, s)
}

func TestTopSKUsTiesByName(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, sku := range []string{"z", "b", "a:2", "a", "Z", "k", "l", "m", "n", "o", "p", "q"} {
		s.mustHandle(t, now(t, "c", "EUR", sku, 5, 1))
	}
	s.mustHandle(t, now(t, "c", "EUR", "q", 1, 1))
	var got []string
	for _, e := range s.mustStats(t).TopSKUs {
		got = append(got, fmt.Sprint(e.SKU, "=", e.Quantity))
	}
	if want := "q=6 Z=5 a=5 a:2=5 b=5 k=5 l=5 m=5 n=5 o=5"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// The day is the order's in UTC, whatever zone its time is written in and whenever it is handled.
func TestDays(t *testing.T) {
	t.Parallel()
	s, m := newStore(t), newModel()
	made := time.Now()
	for _, at := range []string{
		"2026-03-28T23:59:59.999999Z", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00+02:00", "2026-03-29T02:00:00+02:00",
		"2026-03-29T23:59:59-12:00", "2026-10-25T02:30:00+02:00", "2024-02-29T12:00:00Z", "1999-12-31T23:00:00-02:00", "0001-01-02T00:00:00Z",
	} {
		when, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		d := placed(t, idAt(made), order("c", "EUR", "a", 1, 7, when))
		m.add(t, d)
		s.mustHandle(t, d)
	}
	m.check(t, s)
	got := ""
	for _, day := range s.mustStats(t).Days {
		got += fmt.Sprintf("%s:%d ", day.Date, day.Orders)
	}
	if want := "2026-10-25:1 2026-03-30:1 2026-03-29:2 2026-03-28:2 2024-02-29:1 2000-01-01:1 0001-01-02:1 "; got != want {
		t.Errorf("days %s, want %s", got, want)
	}
}

// Only the newest days are kept; the totals have all.
func TestOldDaysAreDropped(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	var batch []*broker.Delivery
	for i := range maxDays + 50 {
		batch = append(batch, placed(t, idAt(time.Now()), order("c", "EUR", "a", 1, 1, first.AddDate(0, 0, i))))
	}
	s.mustHandle(t, batch...)
	s.mustHandle(t, placed(t, idAt(time.Now()), order("c", "EUR", "a", 1, 1, first))) // older than all that are kept
	keys, err := s.client.Keys(t.Context(), dayPrefix+"*").Result()
	if err != nil || len(keys) != maxDays {
		t.Errorf("%d days are kept, %v; want %d", len(keys), err, maxDays)
	}
	stats := s.mustStats(t)
	if stats.Orders != maxDays+51 || len(stats.Days) != mostDays || stats.Days[0].Date != first.AddDate(0, 0, maxDays+49).Format(time.DateOnly) {
		t.Errorf("%d orders, %d days from %s", stats.Orders, len(stats.Days), stats.Days[0].Date)
	}
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	at := time.Now()
	dayAgo := at.Add(-24 * time.Hour)
	s.mustHandle(t, placed(t, idAt(at), order("c", "EUR", "a", 1, 1, at)), placed(t, idAt(dayAgo), order("c", "EUR", "a", 1, 1, at)))
	for _, when := range []time.Time{at, dayAgo} {
		day := when.UTC().Truncate(24 * time.Hour)
		key := markerPrefix + day.Format("2006-01-02")
		if n := s.client.SCard(t.Context(), key).Val(); n != 1 {
			t.Errorf("%s has %d ids, want 1", key, n)
		}
		want := day.Add(24*time.Hour + testRetention)
		if got := s.client.ExpireTime(t.Context(), key).Val(); got != time.Duration(want.Unix())*time.Second {
			t.Errorf("%s ends at %s, want %s", key, got, want)
		}
	}
}

// An event whose marker's day is over is refused, counted or not, alone or among others.
func TestLateEvents(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	inTime := today.Add(-testRetention)              // its day ended exactly PROCESSED_RETENTION before the end of today
	late := today.Add(-testRetention - 24*time.Hour) // the day before
	fresh, old, tooOld := now(t, "c", "EUR", "a", 1, 5), placed(t, idAt(inTime), order("c", "EUR", "a", 1, 1, inTime)),
		placed(t, idAt(late), order("c", "EUR", "a", 1, 1, late))
	again := *tooOld
	if err := s.handle(t.Context(), []*broker.Delivery{fresh, tooOld, old, &again}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*broker.Delivery{tooOld, &again} {
		if !broker.IsPermanent(d.Verdict()) || !errors.Is(d.Verdict(), errLate) {
			t.Errorf("verdict %v", d.Verdict())
		}
	}
	if fresh.Verdict() != nil || old.Verdict() != nil {
		t.Errorf("verdicts %v, %v", fresh.Verdict(), old.Verdict())
	}
	if got := s.mustStats(t); got.Orders != 2 || got.Revenue["EUR"] != 6 {
		t.Errorf("statistics %+v", got)
	}
	if s.client.Exists(t.Context(), markerPrefix+late.Format("2006-01-02")).Val() != 0 {
		t.Error("a marker was left for the late event")
	}
}

func TestBadEvents(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	at := time.Now()
	good := order("c", "EUR", "a", 1, 1, at)
	with := func(change func(*event.OrderPlaced)) *broker.Delivery {
		o := good
		o.Items = append([]event.Item(nil), good.Items...)
		change(&o)
		return placed(t, idAt(at), o)
	}
	id := idAt(at)
	bad := []*broker.Delivery{
		placed(t, "", good), placed(t, "x", good), placed(t, "7d444840-9dc0-41d1-b245-5ffdce74fad2", good), // a UUIDv4
		placed(t, "{"+id+"}", good), placed(t, "urn:uuid:"+id, good), placed(t, strings.ReplaceAll(id, "-", ""), good),
		{Event: broker.Event{ID: id, Data: []byte(`{"id":`)}},
		with(func(o *event.OrderPlaced) { o.Currency = "eur" }), with(func(o *event.OrderPlaced) { o.Currency = "EURO" }),
		with(func(o *event.OrderPlaced) { o.CustomerID = strings.Repeat("c", 65) }),
		with(func(o *event.OrderPlaced) { o.Items[0].SKU = strings.Repeat("c", 65) }),
		with(func(o *event.OrderPlaced) { o.Total = 2 }),
	}
	fine := placed(t, strings.ToUpper(id), good)
	if err := s.handle(t.Context(), append([]*broker.Delivery{fine}, bad...)); err != nil {
		t.Fatal(err)
	}
	for i, d := range bad {
		if !broker.IsPermanent(d.Verdict()) {
			t.Errorf("event %d, %.40q: verdict %v", i, d.ID, d.Verdict())
		}
	}
	again := placed(t, id, good) // the same id in small letters
	s.mustHandle(t, again)
	if !again.IsDuplicate() || s.mustStats(t).Orders != 1 {
		t.Errorf("duplicate %t, statistics %+v", again.IsDuplicate(), s.mustStats(t))
	}
}

func TestPortion(t *testing.T) {
	t.Parallel()
	sales := func(n, items int) (out []*sale) {
		for range n {
			out = append(out, &sale{order: event.OrderPlaced{Items: make([]event.Item, items)}})
		}
		return out
	}
	for _, tt := range []struct{ n, items, want int }{
		{1, 1, 1}, {999, 1, 999}, {1_000, 1, 1_000}, {1_001, 1, 1_000}, {5_000, 1, 1_000}, {101, 100, 100}, {100, 100, 100},
		{2, 20_000, 1}, // no order is as big as that; should one come, it goes alone
	} {
		if got := portion(sales(tt.n, tt.items)); got != tt.want {
			t.Errorf("%d sales of %d items: %d, want %d", tt.n, tt.items, got, tt.want)
		}
	}
}
