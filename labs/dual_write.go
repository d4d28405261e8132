package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

var dualWrite = lab{
	name:     "dual-write",
	about:    "an order in Postgres and its event in Redis: two writes, and a kill -9 between them; then an outbox",
	run:      runDualWrite,
	postgres: true,
	roles: map[string]func(context.Context, *worker){
		"commit-first": commitFirst, "event-first": eventFirst, "outbox": orderAndOutbox, "relay": relay,
	},
}

// nextKey gives out the orders' numbers: each request gets a new one, also the request after a kill.
const nextKey = prefix + "next"

func runDualWrite(ctx context.Context, s *session) {
	s.step(ctx, "By hand: commit the order, die before XADD")
	s.sql(ctx, "create table lab.orders (id int primary key)")
	s.sql(ctx, "create table lab.outbox (position bigint generated always as identity, order_id int, published boolean default false)")
	s.sql(ctx, "insert into lab.orders values (1)")
	s.note("Say the handler is killed here. The order is there. Is its event?")
	s.do(ctx, "XLEN", eventsKey)
	s.note("No, and nothing in Postgres or Redis says that it should be.")

	var table [][]any
	for _, part := range []struct {
		how, title, role string
		relays           int
	}{
		{"commit, then XADD", "500 requests in 4 handlers, 20 times kill -9: commit, then XADD", "commit-first", 0},
		{"XADD, then commit", "The other way round: XADD, then commit", "event-first", 0},
		{"outbox and relay", "Order and event in one transaction; a relay, which is killed too, brings the events to Redis", "outbox", 1},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		must(s.pg.Exec(ctx, "truncate lab.orders, lab.outbox"))
		handlers := &fleet{s: s, role: "dual-write/" + part.role, sameName: true, args: []string{"drain"}}
		relays := &fleet{s: s, role: "dual-write/relay", sameName: true, args: []string{"drain"}}
		defer handlers.stop()
		defer relays.stop()
		relays.start(ctx, part.relays, 0)
		handlers.start(ctx, 4, 0)
		relayKills := 0
		requests := func() int {
			n, err := s.redis.Get(ctx, nextKey).Int()
			if !isNil(err) {
				check(err)
			}
			return n
		}
		handlers.killWhile(ctx, 20, orders, func() int {
			n := requests()
			if part.relays > 0 && n >= (relayKills+1)*orders/5 && len(relays.atWork()) > 0 {
				relays.replace(relays.members[0])
				relayKills++
			}
			return n
		})
		s.until(ctx, "all requests were made", func() bool { return requests() >= orders })
		handlers.term()
		if part.relays > 0 {
			s.until(ctx, "the outbox is empty", func() bool {
				var left int
				check(s.pg.QueryRow(ctx, "select count(*) from lab.outbox where not published").Scan(&left))
				return left == 0
			})
			relays.term()
		}
		stored := s.sqlCount(ctx, "select count(*) from lab.orders")
		s.do(ctx, "XLEN", eventsKey)
		noEvent, noOrder, again := compareBooks(ctx, s)
		table = append(table, []any{part.how, stored, noEvent, noOrder, again})
	}
	s.table([]string{"what", "orders", "orders without an event", "events without an order", "events twice"}, table...)
	s.conclude("two systems cannot be written in one step, so write one, with the event beside the order, and carry it over until it is there.")
}

// request is one call of the handler after the other, until all numbers are given out.
func request(ctx context.Context, w *worker, handle func(pg *pgx.Conn, order int64)) {
	pg := connect(ctx)
	for !w.stopping() {
		order := must(w.redis.Incr(ctx, nextKey).Result())
		if order > orders {
			work(10 * time.Millisecond) // nothing more is asked for
			continue
		}
		handle(pg, order)
	}
}

// commitFirst has the mistake: between commit and XADD the event exists in this process only.
func commitFirst(ctx context.Context, w *worker) {
	request(ctx, w, func(pg *pgx.Conn, order int64) {
		must(pg.Exec(ctx, "insert into lab.orders values ($1)", order))
		gap()
		addEvent(ctx, w, order)
	})
}

// eventFirst has the other one: between XADD and commit the event tells of an order that is not there.
func eventFirst(ctx context.Context, w *worker) {
	request(ctx, w, func(pg *pgx.Conn, order int64) {
		addEvent(ctx, w, order)
		gap()
		must(pg.Exec(ctx, "insert into lab.orders values ($1)", order))
	})
}

// orderAndOutbox writes one system only, in one transaction.
func orderAndOutbox(ctx context.Context, w *worker) {
	request(ctx, w, func(pg *pgx.Conn, order int64) {
		tx := must(pg.Begin(ctx))
		must(tx.Exec(ctx, "insert into lab.orders values ($1)", order))
		gap()
		must(tx.Exec(ctx, "insert into lab.outbox (order_id) values ($1)", order))
		check(tx.Commit(ctx))
	})
}

// relay carries over what is not yet marked, and marks it when Redis has answered. A kill between the two adds the event again: it may
// come twice, and never not at all. It looks for rows without a mark, and not for those behind the last position: positions are
// given out before their transactions commit, so one that is smaller may appear later.
func relay(ctx context.Context, w *worker) {
	pg := connect(ctx)
	for !w.stopping() {
		rows := must(pg.Query(ctx, "select position, order_id from lab.outbox where not published order by position limit 10"))
		batch := must(pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Position, Order int64 }]))
		if len(batch) == 0 {
			work(10 * time.Millisecond)
			continue
		}
		var positions []int64
		for _, row := range batch {
			addEvent(ctx, w, row.Order)
			positions = append(positions, row.Position)
		}
		gap()
		must(pg.Exec(ctx, "update lab.outbox set published = true where position = any($1)", positions))
	}
}

func addEvent(ctx context.Context, w *worker, order int64) {
	check(w.redis.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{"order", order}}).Err())
}

// compareBooks lays the orders in Postgres beside the events in Redis.
func compareBooks(ctx context.Context, s *session) (noEvent, noOrder, again int) {
	events := map[string]int{}
	for _, e := range must(s.redis.XRange(ctx, eventsKey, "-", "+").Result()) {
		events[fmt.Sprint(e.Values["order"])]++
	}
	stored := map[string]bool{}
	rows := must(s.pg.Query(ctx, "select id::text from lab.orders"))
	for _, id := range must(pgx.CollectRows(rows, pgx.RowTo[string])) {
		stored[id] = true
		if events[id] == 0 {
			noEvent++
		}
	}
	for id, n := range events {
		if !stored[id] {
			noOrder++
		}
		if n > 1 {
			again++
		}
	}
	return noEvent, noOrder, again
}
