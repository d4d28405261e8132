package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

var twice = lab{
	name:     "twice",
	about:    "an entry can come twice; which handler does its work once all the same, and which skips it or does it again",
	run:      runTwice,
	postgres: true,
	roles: map[string]func(context.Context, *worker){
		"no-marker": noMarker, "marker-first": markerFirst, "transaction": oneTransaction, "script": oneScript, "mail": mailThenMarker,
	},
}

// orders is how many orders there are in the labs with a Postgres, which take longer.
const orders = 500

// cameKey is the hash that has for each order how often it came to a handler.
const cameKey = prefix + "came"

func runTwice(ctx context.Context, s *session) {
	s.step(ctx, "By hand: credit, and die before XACK")
	s.sql(ctx, "create table lab.credits (order_id int, points int)")
	s.sql(ctx, "create table lab.processed (order_id int primary key)")
	s.do(ctx, "XADD", eventsKey, "*", "order", 1)
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, ">")
	s.sql(ctx, "insert into lab.credits values (1, 10)")
	s.note("Say w1 is killed here. It comes back, gets the entry again, and credits again:")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "COUNT", 1, "STREAMS", eventsKey, "0")
	s.sql(ctx, "insert into lab.credits values (1, 10)")
	s.sqlCount(ctx, "select sum(points) from lab.credits")

	inPostgres := func() (missing, again int) {
		done := s.sqlCount(ctx, "select count(distinct order_id) from lab.credits")
		return orders - done, s.sqlCount(ctx, "select count(*) from lab.credits") - done
	}
	inRedis := func() (missing, again int) {
		return orders - s.count(ctx, "HLEN", doneKey), repeated(ctx, s)
	}
	var table [][]any
	part := func(how, title, role string, counted func() (missing, again int)) {
		s.clear(ctx)
		s.step(ctx, "%s", title)
		must(s.pg.Exec(ctx, "truncate lab.credits, lab.processed"))
		addEntries(ctx, s, "order", 1, orders)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
		f := &fleet{s: s, role: "twice/" + role, sameName: true, args: []string{"drain"}}
		defer f.stop()
		f.start(ctx, 4, 0)
		f.killWhile(ctx, 20, orders, func() int { return settled(ctx, s, group) })
		s.until(ctx, "nothing is unread or pending", func() bool { return settled(ctx, s, group) == orders })
		f.term()
		missing, again := counted()
		table = append(table, []any{how, orders, 20, moreThanOnce(ctx, s, cameKey), missing, again})
	}
	part("no marker", "500 orders, 20 times kill -9. A handler without a marker: credit, XACK", "no-marker", inPostgres)
	s.note("The data can be put right:")
	s.sql(ctx, "delete from lab.credits a using lab.credits b where a.order_id = b.order_id and a.ctid > b.ctid")
	part("no marker, data put right", "The same code, as it goes on: the next 500 orders", "no-marker", inPostgres)
	part("marker before the work", "SET NX as a marker, then credit, then XACK", "marker-first", inPostgres)
	part("one transaction", "Marker and credit in one transaction of Postgres, then XACK", "transaction", inPostgres)
	part("one script", "Marker and sum in one script of Redis, then XACK", "script", inRedis)
	part("mail, marker after it", "A mail cannot be in a transaction: look for the marker, send, set the marker, XACK", "mail", inRedis)
	s.table([]string{"handler", "orders", "workers killed", "came again", "skipped for good", "done again"}, table...)
	s.conclude("marker and work must become true in one step; where they cannot, choose between skipping and repeating, and repeat.")
}

// gap is where a kill hurts: between two steps that belong together. It is there in every program. Here it is long, so that 20 kills show what
// otherwise takes a year.
func gap() { work(3 * time.Millisecond) }

// handle notes that an entry came, runs do, and acknowledges it.
func handle(ctx context.Context, w *worker, do func(order any)) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		order := e.Values["order"]
		check(w.redis.HIncrBy(ctx, cameKey, fmt.Sprint(order), 1).Err())
		do(order)
		gap()
		check(w.redis.XAck(ctx, eventsKey, group, e.ID).Err())
	})
}

// noMarker credits whatever comes.
func noMarker(ctx context.Context, w *worker) {
	pg := connect(ctx)
	handle(ctx, w, func(order any) {
		must(pg.Exec(ctx, "insert into lab.credits values ($1::text::int, 10)", order))
	})
}

// markerFirst credits once at most: who finds the marker believes that the work is done.
func markerFirst(ctx context.Context, w *worker) {
	pg := connect(ctx)
	handle(ctx, w, func(order any) {
		if fresh := must(w.redis.SetNX(ctx, fmt.Sprint(prefix, "marker:", order), "1", time.Hour).Result()); !fresh {
			return
		}
		gap()
		must(pg.Exec(ctx, "insert into lab.credits values ($1::text::int, 10)", order))
	})
}

// oneTransaction marks and credits in one statement, which is one transaction: both are there or neither.
func oneTransaction(ctx context.Context, w *worker) {
	pg := connect(ctx)
	handle(ctx, w, func(order any) {
		must(pg.Exec(ctx, `
			with fresh as (
				insert into lab.processed values ($1::text::int)
				on conflict do nothing
				returning order_id
			)
			insert into lab.credits select order_id, 10 from fresh`, order))
	})
}

// markAndAdd marks and adds in one script, which Redis runs alone and to its end.
//
//	KEYS[1]  the set of markers
//	KEYS[2]  the hash: order -> how often it was counted
//	ARGV[1]  the order
const markAndAdd = `
if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
end`

func oneScript(ctx context.Context, w *worker) {
	handle(ctx, w, func(order any) {
		err := w.redis.Eval(ctx, markAndAdd, []string{prefix + "markers", doneKey}, order).Err()
		if !isNil(err) {
			check(err)
		}
	})
}

// mailThenMarker sends a mail, which nothing can undo and no transaction can hold. Here the mailbox is the hash lab:done.
func mailThenMarker(ctx context.Context, w *worker) {
	handle(ctx, w, func(order any) {
		marker := fmt.Sprint(prefix, "sent:", order)
		if must(w.redis.Exists(ctx, marker).Result()) == 1 {
			return
		}
		w.done(ctx, order)
		gap()
		check(w.redis.Set(ctx, marker, "1", time.Hour).Err())
	})
}

func connect(ctx context.Context) *pgx.Conn {
	return must(pgx.Connect(ctx, os.Getenv(postgresVariable)))
}
