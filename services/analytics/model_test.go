package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
)

const testRetention = 9 * 24 * time.Hour

func newStore(t testing.TB, args ...string) *store {
	t.Helper()
	opts := servertest.Redis(t, args...).Options()
	opts.ContextTimeoutEnabled = true
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	return &store{client: client, retention: testRetention, log: slog.New(slog.DiscardHandler)}
}

// do sends a command and wants it to work.
func (s *store) do(t testing.TB, args ...any) any {
	t.Helper()
	v, err := s.client.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// idAt makes an event id at that time.
func idAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	binary.BigEndian.PutUint16(id[0:], uint16(at.UnixMilli()>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(at.UnixMilli()))
	return id.String()
}

// order makes an order of one article.
func order(customer, currency, sku string, quantity, price int64, at time.Time) event.OrderPlaced {
	return event.OrderPlaced{
		ID: "o", CustomerID: customer, Email: "ada@example.test", Currency: currency, Status: "placed", CreatedAt: at,
		Items: []event.Item{{SKU: sku, Quantity: quantity, UnitPrice: price}}, Total: quantity * price,
	}
}

func placed(t testing.TB, id string, o event.OrderPlaced) *broker.Delivery {
	t.Helper()
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &broker.Delivery{Event: broker.Event{ID: id, Type: event.TypeOrderPlaced, Data: data}}
}

// now is a delivery of an order placed now.
func now(t testing.TB, customer, currency, sku string, quantity, price int64) *broker.Delivery {
	at := time.Now()
	return placed(t, idAt(at), order(customer, currency, sku, quantity, price, at))
}

// count handles the deliveries as a batch and wants them done.
func (s *store) mustHandle(t testing.TB, ds ...*broker.Delivery) {
	t.Helper()
	if err := s.handle(context.Background(), ds); err != nil {
		t.Fatal(err)
	}
	for i, d := range ds {
		if d.Verdict() != nil {
			t.Fatalf("delivery %d: %v", i, d.Verdict())
		}
	}
}

func (s *store) mustStats(t testing.TB) Stats {
	t.Helper()
	out, err := s.stats(context.Background(), mostDays)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// model says what the statistics must be, counting each event once.
type model struct {
	seen      map[string]bool
	customers map[string]bool
	skus      map[string]int64
	days      map[string]*Day
	all       Day
}

func newModel() *model {
	return &model{
		seen: make(map[string]bool), customers: make(map[string]bool), skus: make(map[string]int64),
		days: make(map[string]*Day), all: Day{Revenue: make(map[string]int64)},
	}
}

func (m *model) add(t testing.TB, d *broker.Delivery) {
	t.Helper()
	if m.seen[d.ID] {
		return
	}
	m.seen[d.ID] = true
	o, err := event.DecodeOrderPlaced(d.Data)
	if err != nil {
		t.Fatal(err)
	}
	m.customers[o.CustomerID] = true
	for _, item := range o.Items {
		m.skus[item.SKU] += item.Quantity
	}
	date := o.CreatedAt.UTC().Format("2006-01-02")
	if m.days[date] == nil {
		m.days[date] = &Day{Date: date, Revenue: make(map[string]int64)}
	}
	for _, sum := range []*Day{&m.all, m.days[date]} {
		sum.Orders++
		sum.Revenue[o.Currency] += o.Total
	}
}

func (m *model) stats() Stats {
	out := Stats{Orders: m.all.Orders, Customers: int64(len(m.customers)), Revenue: m.all.Revenue, TopSKUs: []SKUQuantity{}, Days: []Day{}}
	for sku, n := range m.skus {
		out.TopSKUs = append(out.TopSKUs, SKUQuantity{sku, n})
	}
	slices.SortFunc(out.TopSKUs, func(a, b SKUQuantity) int {
		return cmp.Or(cmp.Compare(b.Quantity, a.Quantity), cmp.Compare(a.SKU, b.SKU))
	})
	out.TopSKUs = out.TopSKUs[:min(len(out.TopSKUs), 10)]
	for _, d := range m.days {
		out.Days = append(out.Days, *d)
	}
	slices.SortFunc(out.Days, func(a, b Day) int { return cmp.Compare(b.Date, a.Date) })
	return out
}

// check compares the statistics with the model's.
func (m *model) check(t testing.TB, s *store) {
	t.Helper()
	got, want := fmt.Sprintf("%+v", s.mustStats(t)), fmt.Sprintf("%+v", m.stats())
	if got != want {
		t.Errorf("statistics\n%s, want\n%s", got, want)
	}
}

// randomOrders makes n deliveries over a few days, customers and articles, some of them of equal quantity.
func randomOrders(t testing.TB, r *rand.Rand, n int) []*broker.Delivery {
	t.Helper()
	today := time.Now()
	var out []*broker.Delivery
	for range n {
		at := today.Add(-time.Duration(r.IntN(72)) * time.Hour)
		o := event.OrderPlaced{
			ID: "o", CustomerID: fmt.Sprintf("c-%d", r.IntN(40)), Currency: []string{"EUR", "USD", "JPY"}[r.IntN(3)], CreatedAt: at,
		}
		for range 1 + r.IntN(4) {
			item := event.Item{SKU: fmt.Sprintf("sku-%d", r.IntN(15)), Quantity: 1 + r.Int64N(3), UnitPrice: r.Int64N(1_000_000_000)}
			o.Items = append(o.Items, item)
			o.Total += item.Quantity * item.UnitPrice
		}
		out = append(out, placed(t, idAt(at), o))
	}
	return out
}
