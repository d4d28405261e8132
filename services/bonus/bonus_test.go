package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/internal/ops"
)

// TestMain is the tests or, where a test has started this binary with RUN_BONUS, the real program: something to kill.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_BONUS") != "" {
		ops.Main(run)
		return
	}
	servertest.Main(m)
}

// world is a database and a handler on it, with the service's own role and settings.
type world struct {
	url   string        // as the service has it
	owner *pgxpool.Pool // may do all
	store *store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	owner := servertest.Database(t)
	w := &world{url: servertest.DatabaseAs(t, owner, "bonus"), owner: newPool(t, owner)}
	w.store = w.newStore(t, nil)
	return w
}

// newStore makes a replica's store.
func (w *world) newStore(t testing.TB, change func(*pgxpool.Config)) *store {
	t.Helper()
	cfg := readDatabase(env.NewReader(func(string) string { return w.url }))
	if cfg == nil {
		t.Fatalf("no configuration for %s", w.url)
	}
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &store{pool: pool}
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (w *world) handle(ds ...*broker.Delivery) error {
	return (&handler{store: w.store}).handle(context.Background(), ds)
}

func (w *world) mustHandle(t testing.TB, ds ...*broker.Delivery) {
	t.Helper()
	if err := w.handle(ds...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := w.owner.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// balances are all accounts, after a look whether the books balance: the accounts are the sums of the ledger.
func (w *world) balances(t testing.TB) map[string]int64 {
	t.Helper()
	rows, err := w.owner.Query(t.Context(), `
		select coalesce(a.customer_id, l.customer_id), coalesce(a.balance, -1), coalesce(l.points, -1)
		from bonus_accounts a
		full join (select customer_id, sum(points)::bigint as points from bonus_ledger group by customer_id) l using (customer_id)`)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int64)
	var customer string
	var balance, points int64
	_, err = pgx.ForEachRow(rows, []any{&customer, &balance, &points}, func() error {
		if balance != points {
			t.Errorf("%s has %d in its account and %d in the ledger", customer, balance, points)
		}
		out[customer] = balance
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rows counts the rows of a table.
func (w *world) rows(t testing.TB, table string) (n int) {
	t.Helper()
	if err := w.owner.QueryRow(t.Context(), `select count(*) from `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// placed is the delivery of an order.
func placed(t testing.TB, customer string, total int64) *broker.Delivery {
	t.Helper()
	o := event.OrderPlaced{
		ID: uuid.Must(uuid.NewV7()).String(), CustomerID: customer, Email: "ada@example.com", Currency: "EUR",
		Items: []event.Item{{SKU: "tea-100", Quantity: 1, UnitPrice: total}}, Total: total, Status: "placed", CreatedAt: time.Now().UTC(),
	}
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return delivery(uuid.Must(uuid.NewV7()).String(), data)
}

func delivery(eventID string, data []byte) *broker.Delivery {
	return &broker.Delivery{Event: broker.Event{
		ID: eventID, Source: event.SourceOrders, Type: event.TypeOrderPlaced, Time: time.Now().UTC(),
		DataContentType: event.ContentType, DataSchema: event.SchemaOrderPlaced, Data: data,
	}, EntryID: "1-1", Attempt: 1, Delivery: 1}
}

// again is a further delivery of the same event.
func again(d *broker.Delivery) *broker.Delivery {
	return &broker.Delivery{Event: d.Event, EntryID: "2-1"}
}

// poll waits until f is true.
func poll(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func customer(i int) string { return fmt.Sprintf("c-%d", i) }
