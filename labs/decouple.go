package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
)

var decouple = lab{
	name:  "decouple",
	about: "a consumer that is down, a burst, a broker that is down: what a queue takes off the producer, and what it costs",
	run:   runDecouple,
	roles: map[string]func(context.Context, *worker){"server": mailServer, "consumer": mailConsumer},
}

const (
	burst   = 5000 // entries at once
	lateKey = prefix + "late"
	// The one that is needed is away from the downAt-th order to the upAt-th.
	downAt, upAt = 150, 350
)

func runDecouple(ctx context.Context, s *session) {
	s.step(ctx, "By hand: the consumer is down, and the producer does not notice")
	s.do(ctx, "XADD", eventsKey, "*", "order", 1)
	s.do(ctx, "XADD", eventsKey, "*", "order", 2)
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0)
	s.note("The consumer starts an hour later:")
	s.do(ctx, "XREADGROUP", "GROUP", group, "w1", "STREAMS", eventsKey, ">")

	var table [][]any
	count := func(how string, n, failed, waited int, latest, took time.Duration) {
		table = append(table, []any{how, n, failed, waited, s.count(ctx, "HLEN", doneKey), int(latest.Milliseconds()), fmt.Sprintf("%.1f", took.Seconds())})
	}
	latest := func() time.Duration {
		return time.Duration(must(s.redis.ZScore(ctx, lateKey, "most").Result())) * time.Millisecond
	}
	undone := func() int { return s.ask(ctx, "XLEN", eventsKey) - settled(ctx, s, group) }

	s.clear(ctx)
	s.step(ctx, "500 orders, a direct call for each mail; the mail server is killed after %d and back after %d", downAt, upAt)
	addr := fmt.Sprintf("127.0.0.1:%d", must(localserver.FreePort()))
	server := &fleet{s: s, role: "decouple/server", sameName: true, args: []string{"addr=" + addr}}
	defer server.stop()
	server.start(ctx, 1, 0)
	s.until(ctx, "the mail server listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	begin, longest := time.Now(), time.Duration(0)
	failed := placeOrders(ctx, func() { crash(server.members[0]) }, func() { server.revive() }, func(order int) error {
		called := time.Now()
		err := callMailServer(addr, order)
		if err == nil {
			longest = max(longest, time.Since(called))
		}
		return err
	})
	count("direct, consumer down", orders, failed, 0, longest, time.Since(begin))
	server.stop()

	s.clear(ctx)
	s.step(ctx, "The same with a queue between the two")
	s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0, "MKSTREAM")
	mailer := &fleet{s: s, role: "decouple/consumer", sameName: true, args: []string{"drain"}}
	defer mailer.stop()
	mailer.start(ctx, 1, 0)
	begin = time.Now()
	waited := 0
	back := func() {
		waited = undone()
		mailer.revive()
	}
	failed = placeOrders(ctx, func() { crash(mailer.members[0]) }, back, func(order int) error {
		return s.redis.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{"order", order}}).Err()
	})
	s.until(ctx, "all are done", func() bool { return s.ask(ctx, "HLEN", doneKey) == orders })
	count("queue, consumer down", orders, failed, waited, latest(), time.Since(begin))
	mailer.term()

	s.clear(ctx)
	s.step(ctx, "The same, and now the broker is down for a while")
	broker, stop := startBroker(ctx, true)
	defer stop()
	begin = time.Now()
	failed = placeOrders(ctx, func() { check(broker.Kill()) }, func() { check(broker.Restart()) }, func(order int) error {
		// A connection of its own for each, as the direct call has: a pool would go on failing for a while.
		client := newClient(broker.Options())
		defer client.Close()
		return client.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{"order", order}}).Err()
	})
	client := newClient(broker.Options())
	defer client.Close()
	took := time.Since(begin)
	s.note("Nobody reads here. What it has taken waits:")
	s.send(ctx, "broker", client, "XLEN", eventsKey)
	kept := int(must(client.XLen(ctx, eventsKey).Result()))
	table = append(table, []any{"queue, broker down", orders, failed, kept, 0, "-", fmt.Sprintf("%.1f", took.Seconds())})
	stop()

	for _, consumers := range []int{1, 2, 4} {
		s.clear(ctx)
		s.step(ctx, "A burst of %s at once, half a millisecond a mail, drained by %d", thousands(burst), consumers)
		s.do(ctx, "XGROUP", "CREATE", eventsKey, group, 0, "MKSTREAM")
		f := &fleet{s: s, role: "decouple/consumer", args: []string{"drain", "us=500"}}
		defer f.stop()
		f.start(ctx, consumers, 0)
		addEntries(ctx, s, "order", 1, burst)
		begin = time.Now()
		waited, shown := undone(), time.Time{}
		s.until(ctx, "the queue is empty", func() bool {
			depth := burst - settled(ctx, s, group)
			s.progress("done", burst-depth, burst)
			if time.Since(shown) > time.Second/2 || depth == 0 {
				shown = time.Now()
				s.note("%4.1f s %s %s", time.Since(begin).Seconds(), strings.Repeat("#", depth*40/burst), thousands(depth))
			}
			return depth == 0
		})
		count(fmt.Sprintf("burst, drained by %d", consumers), burst, 0, waited, latest(), time.Since(begin))
		f.term()
	}
	s.table([]string{"what", "orders", "failed", "waited", "done", "latest mail, ms", "seconds until all was over"}, table...)
	s.conclude("a queue lets the producer go on while the consumer is away or slow; the work is done later, and the broker is now what must be up.")
}

// placeOrders sends one order a millisecond, and returns how many failed.
func placeOrders(ctx context.Context, down, up func(), send func(order int) error) (failed int) {
	for order := 1; order <= orders; order++ {
		check(ctx.Err())
		switch order {
		case downAt:
			down()
		case upAt:
			up()
		}
		if send(order) != nil {
			failed++
		}
		work(time.Millisecond)
	}
	return failed
}

// callMailServer asks for a mail and waits until it is sent.
func callMailServer(addr string, order int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, order); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

// mailServer does what it is called for, while the caller waits.
func mailServer(ctx context.Context, w *worker) {
	listener := must(net.Listen("tcp", w.args["addr"]))
	for {
		conn := must(listener.Accept())
		if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
			w.done(ctx, must(strconv.Atoi(strings.TrimSpace(line))))
			fmt.Fprintln(conn, "sent")
		}
		conn.Close()
	}
}

// mailConsumer does the same from the stream, when it comes to it.
func mailConsumer(ctx context.Context, w *worker) {
	w.ownThenNew(ctx, group, func(e redis.XMessage) {
		work(time.Duration(w.number("us", 0)) * time.Microsecond)
		added, _ := splitID(e.ID) // in ms since 1970
		// Notes and XACK go in one round trip.
		_, err := w.redis.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.HIncrBy(ctx, doneKey, fmt.Sprint(e.Values["order"]), 1)
			tx.ZAddGT(ctx, lateKey, redis.Z{Score: float64(time.Now().UnixMilli() - int64(added)), Member: "most"})
			tx.XAck(ctx, eventsKey, group, e.ID)
			return nil
		})
		check(err)
	})
}
