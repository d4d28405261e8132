package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/migrations"
)

// startBehind starts the service with a forwarder between it and its database.
func startBehind(t *testing.T, env map[string]string) (*service, *forwarder) {
	t.Helper()
	owner := servertest.Database(t)
	f, through := forward(t, servertest.DatabaseAs(t, owner, "orders"))
	all := map[string]string{"DATABASE_URL": through}
	for k, v := range env {
		all[k] = v
	}
	return startOn(t, owner, all), f
}

// TestCommitWithoutAnswer loses the answer to a commit that took place, with and without a key.
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, f := startBehind(t, nil)
	for n, tc := range []struct {
		what  trouble
		times int
		key   string
	}{
		{loseReply, 1, ""}, {loseReply, 1, "k1"}, {loseReply, 3, ""}, {loseReply, 3, "k2"},
		{loseSaying, 1, ""}, {loseSaying, 1, "k3"}, {holdReply, 1, ""}, {holdReply, 1, "k4"},
	} {
		var headers []string
		var a answer
		customer, rows := "", 0
		eventually(t, fmt.Sprintf("%+v: an answer in time", tc), func() bool {
			rows = s.count(`select count(*) from orders`)
			customer = fmt.Sprintf("c-%d-%d", n, rows)
			f.on(customer, tc.what, tc.times)
			if tc.key != "" {
				headers = []string{"Idempotency-Key", fmt.Sprint(tc.key, "-", rows)}
			}
			began := time.Now()
			a = s.do(http.MethodPost, "/orders", orderOf(customer, 1), headers...)
			// A machine so busy that the tries took writeTimeout may say that it does not know; then it is another order's turn.
			return time.Since(began) < writeTimeout || a.StatusCode != 503 || !strings.Contains(string(a.body), "did not say")
		})
		if a.StatusCode != 201 || f.happened() != tc.times || a.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%+v: %s %s; it happened %d times, headers %v", tc, a.Status, a.body, f.happened(), a.Header)
		}
		s.get(200, a.Header.Get("Location"))
		if tc.key != "" {
			if again := s.post(201, orderOf(customer, 1), headers...); string(again.body) != string(a.body) || again.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%+v: a replay gives %s, want %s", tc, again.body, a.body)
			}
		}
		s.wantRows(rows + 1)
	}
}

// waiters counts the sessions that wait for a lock on the table.
func (s *service) waiters(table string) int {
	return s.count(`select count(*) from pg_locks where not granted and relation = $1::regclass`, table)
}

// TestOwnTryHasTheKey loses a connection whose statement goes on, with the lock of its key: the next try must not take that for another
// request.
func TestOwnTryHasTheKey(t *testing.T) {
	t.Parallel()
	s, f := startBehind(t, nil)
	f.ignoreCancels()
	s.exec(`create function hold() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(42); return new; end'`)
	s.exec(`create trigger hold before insert on order_items for each row execute function hold()`)
	tx := s.hold(`select pg_advisory_xact_lock(42)`)
	answered := make(chan answer, 1)
	go func() { answered <- s.do(http.MethodPost, "/orders", goodOrder, "Idempotency-Key", "k") }()
	eventually(t, "the statement waits", func() bool {
		return s.count(`select count(*) from pg_locks where not granted and locktype = 'advisory'`) == 1
	})
	f.on("c-42", pass, -1) // only counts
	f.closeAll()
	eventually(t, "two more tries have found the key locked", func() bool { return f.happened() > 2 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.StatusCode != 201 || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("got %s %s", a.Status, a.body)
	}
	s.wantRows(1)
}

// TestClientLeaves has the client leave, and then the statement fail: the order is placed all the same.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	tx := s.hold(`lock table orders in exclusive mode`)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.try(ctx, http.MethodPost, "/orders", goodOrder)
		left <- err
	}()
	eventually(t, "the statement waits", func() bool { return s.waiters("orders") == 1 })
	leave()
	if err := <-left; err == nil {
		t.Error("the client got an answer")
	}
	s.exec(`select pg_terminate_backend(pid) from pg_locks where not granted and relation = 'orders'::regclass`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the order is placed", func() bool { return s.count(`select count(*) from orders`) == 1 })
}

// TestCommitNeverAnswered: where no try has an answer, the client is told so, with the order's id.
func TestCommitNeverAnswered(t *testing.T) {
	t.Parallel()
	s, f := startBehind(t, nil)
	for n, what := range []trouble{loseReply, holdReply} {
		customer := fmt.Sprintf("c-%d", n)
		f.on(customer, what, -1)
		start := time.Now()
		a := s.post(503, orderOf(customer, 1), "Idempotency-Key", "k")
		p := a.problem(t)
		var id string
		if err := s.database.QueryRow(t.Context(), `select id from orders where customer_id = $1`, customer).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(p.Detail, id) || a.Header.Get("Retry-After") == "" || time.Since(start) > writeTimeout+10*time.Second {
			t.Errorf("order %s: got %+v after %s", id, p, time.Since(start))
		}
		f.set(pass)
		again := s.post(201, orderOf(customer, 1), "Idempotency-Key", "k")
		if again.order(t).ID != id {
			t.Errorf("the key stands for %s, want %s", again.order(t).ID, id)
		}
		s.wantRows(n + 1)
	}
}

// TestImpatientClients has clients that hang up after a few milliseconds, with a database whose answers are lost now and then, and
// retry with their keys until they know: each gets one order.
func TestImpatientClients(t *testing.T) {
	t.Parallel()
	s, f := startBehind(t, nil)
	f.on("c-impatient", loseReply, 15)
	const orders = 100
	ids := make([]string, orders)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := worker; n < orders; n += 4 {
				for patience := 5 * time.Millisecond; ids[n] == ""; patience *= 2 {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					a, err := s.try(ctx, http.MethodPost, "/orders", orderOf("c-impatient", n+1), "Idempotency-Key", strconv.Itoa(n))
					cancel()
					switch {
					case err != nil:
					case a.StatusCode == 201:
						ids[n] = a.order(t).ID
					case a.StatusCode != 409 && a.StatusCode != 503:
						t.Errorf("order %d: %s %s", n, a.Status, a.body)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	s.wantRows(orders)
	for n, id := range ids {
		if s.count(`select count(*) from orders where id = $1 and total = $2`, id, n+1) != 1 {
			t.Errorf("order %d was answered with %s, which is another", n, id)
		}
	}
	if n := s.count(`select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`); n != 0 {
		t.Errorf("%d connections are idle in transaction", n)
	}
}

func TestPostgresAway(t *testing.T) {
	t.Parallel()
	s, f := startBehind(t, nil)
	id := s.post(201, goodOrder).order(t).ID
	eventually(t, "ready", func() bool { return s.do(http.MethodGet, "/readyz", "").StatusCode == 200 })
	for _, what := range []trouble{refuse, freeze} {
		f.set(what)
		start := time.Now()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				a := s.post(503, goodOrder)
				if a.problem(t); a.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			})
		}
		wg.Go(func() {
			for _, path := range []string{"/orders/" + id, "/orders?customer_id=c-42", "/readyz"} {
				a := s.get(503, path)
				if a.Header.Get("Retry-After") == "" && path != "/readyz" {
					t.Errorf("%s: no Retry-After", path)
				}
				if strings.Contains(string(a.body), "127.0.0.1") || strings.Contains(string(a.body), "dial") {
					t.Errorf("%s tells what is inside: %s", path, a.body)
				}
			}
		})
		s.get(200, "/healthz")
		wg.Wait()
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("the answers took %s", took)
		}
		f.set(pass)
		eventually(t, "orders are taken again", func() bool { return s.do(http.MethodPost, "/orders", goodOrder).StatusCode == 201 })
		eventually(t, "ready again", func() bool { return s.do(http.MethodGet, "/readyz", "").StatusCode == 200 })
	}
}

// TestPostgresRestarts loses every connection of the pool at once: the next order must not notice.
func TestPostgresRestarts(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	for round := range 3 {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { s.post(201, goodOrder) })
		}
		wg.Wait()
		s.exec(`select pg_terminate_backend(pid) from pg_stat_activity where usename = 'orders' and datname = current_database()`)
		id := s.post(201, goodOrder).order(t).ID
		s.get(200, "/orders/"+id)
		s.wantRows(11 * (round + 1))
	}
}

// TestStartsBeforeItsDatabase starts the service where there is no schema yet.
func TestStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	owner := servertest.Postgres(t).URL() // the roles' limits, which come with the migrations, must not meet the other tests
	if err := migrations.Apply(t.Context(), owner, discard); err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })
	for _, sql := range []string{`drop schema public cascade`, `create schema public`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s := startOn(t, owner, nil)
	if a := s.post(503, goodOrder); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a := s.get(503, "/readyz")
	if !strings.Contains(string(a.body), "migrations") {
		t.Errorf("readyz says %s", a.body)
	}
	if err := migrations.Apply(t.Context(), owner, discard); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return s.do(http.MethodGet, "/readyz", "").StatusCode == 200 })
	s.post(201, goodOrder)
}

// TestSchemaChanges changes the tables under load: nobody notices.
func TestSchemaChanges(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	var stop atomic.Bool
	var placed atomic.Int64
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				a := s.post(201, goodOrder, "Idempotency-Key", fmt.Sprintf("%d-%d", worker, n))
				placed.Add(1)
				s.get(200, a.Header.Get("Location"))
				s.get(200, "/orders?customer_id=c-42&limit=2")
			}
		})
	}
	for _, sql := range []string{
		`alter table orders add column note text`,
		`alter table orders alter column customer_id type varchar(100)`,
		`alter table orders alter column total type numeric`,
		`alter table order_items alter column quantity type numeric, add column note text`,
		`alter table outbox add column note text`,
		`alter table idempotency_keys add column note text default 'x'`,
		`alter table orders alter column customer_id type text, alter column total type bigint`,
		`alter table orders drop column note`,
	} {
		before := s.count(`select count(*) from orders`)
		eventually(t, "orders go on", func() bool { return s.count(`select count(*) from orders`) > before+8 })
		s.exec(sql)
	}
	stop.Store(true)
	wg.Wait()
	s.wantRows(int(placed.Load()))
}

// TestSmallPool has more requests than connections: all are answered, and health as well.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"1", "2"} {
		owner := servertest.Database(t)
		s := startOn(t, owner, map[string]string{"DATABASE_URL": servertest.DatabaseAs(t, owner, "orders") + "&pool_max_conns=" + size})
		eventually(t, "ready", func() bool { return s.do(http.MethodGet, "/readyz", "").StatusCode == 200 })
		taken, unclear := s.crowd(t)
		if taken == 0 {
			t.Error("no order was taken")
		}
		rows := int(s.count(`select count(*) from orders`))
		if rows < taken || rows > taken+unclear {
			t.Errorf("%d orders, %d were taken and %d have no clear answer", rows, taken, unclear)
		}
		s.wantRows(rows)
	}
}

// crowd posts a hundred orders at a time, two for each key. They wait for a lock until health has answered while a connection was busy with
// one of them all the time.
func (s *service) crowd(t *testing.T) (taken, unclear int) { // named: they count on until all have ended
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var healthy atomic.Bool
	lock := s.hold(`lock table orders in exclusive mode`)
	defer wg.Wait()
	defer healthy.Store(true)
	defer func() { _ = lock.Rollback(context.Background()) }()
	post := func(key string) {
		a := s.do(http.MethodPost, "/orders", goodOrder, "Idempotency-Key", key)
		mu.Lock()
		defer mu.Unlock()
		switch a.StatusCode {
		case 201:
			if a.Header.Get("Idempotency-Replayed") == "" {
				taken++
			}
		case 503:
			if strings.Contains(string(a.body), "did not say") { // it may be there: Postgres took longer than a try may
				unclear++
			}
		case 409:
		default:
			t.Errorf("got %s %s", a.Status, a.body)
		}
	}
	for n := range 100 {
		wg.Go(func() {
			for round := 0; !healthy.Load(); round++ {
				post(fmt.Sprint(n/2, "-", round))
			}
			post(fmt.Sprint(n/2, "-last"))
		})
	}
	waits := func() int {
		return s.count(`select coalesce(max(pid), 0) from pg_locks where not granted and relation = 'orders'::regclass`)
	}
	eventually(t, "health answers beside them", func() bool {
		before := waits()
		return before != 0 && s.do(http.MethodGet, "/readyz", "").StatusCode == 200 && waits() == before
	})
	return
}
