package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

var threePieces = lab{
	name:  "three-pieces",
	about: "a producer that waits, a broker that persists, a consumer that acknowledges after the work: take one away",
	run:   runThreePieces,
	roles: map[string]func(context.Context, *worker){"producer": piecesProducer, "consumer": piecesConsumer},
}

const (
	pieces = 500 // jobs
	// backlog is how many wait when the consumers begin. So there is always something in the broker that a kill can take away, also where the
	// producer is slower than they are.
	backlog = 200
)

// sentKey counts how far the producer is. Like lab:done it stands in the lab's own Redis, which nobody kills, and not in the broker.
const sentKey = prefix + "sent"

func runThreePieces(ctx context.Context, s *session) {
	s.step(ctx, "By hand: add an entry to a broker without persistence, kill -9 the broker, start it again")
	broker, stop := startBroker(ctx, false)
	defer stop()
	client := newClient(broker.Options())
	defer client.Close()
	s.send(ctx, "broker", client, "XADD", eventsKey, "*", "job", 1)
	check(broker.Kill())
	s.note("kill -9, and started again:")
	check(broker.Restart())
	s.until(ctx, "the broker answers", func() bool { return client.Ping(ctx).Err() == nil })
	s.send(ctx, "broker", client, "XLEN", eventsKey)
	stop()

	var table [][]any
	for _, part := range []struct {
		how, title         string
		persist            bool
		producer, consumer []string
	}{
		{"all three", "500 jobs, 4 consumers, which begin when 200 are sent; the broker is killed half-way, a consumer 10 times; all three pieces", true, nil, nil},
		{"producer does not wait", "The same, but the producer sends and does not look at the answer", true, []string{"forget"}, nil},
		{"broker does not persist", "The same, but the broker keeps all in memory", false, nil, nil},
		{"XACK before the work", "The same, but the consumers acknowledge first", true, nil, []string{"early"}},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		broker, stop := startBroker(ctx, part.persist)
		defer stop()
		at := "broker=" + broker.URL()
		consumers := &fleet{s: s, role: "three-pieces/consumer", sameName: true, args: append(part.consumer, at, "drain")}
		producer := &fleet{s: s, role: "three-pieces/producer", args: append(part.producer, at)}
		defer consumers.stop()
		defer producer.stop()
		consumers.start(ctx, 4, 0)
		producer.start(ctx, 1, 0)
		killed := false
		consumers.killWhile(ctx, 10, pieces-backlog, func() int {
			sent := sentSoFar(ctx, s.redis)
			if sent >= pieces/2 && !killed {
				check(broker.Kill())
				s.note("%d sent; the broker is killed (kill -9), and started again", sent)
				check(broker.Restart())
				killed = true
			}
			return sent - backlog
		})
		producer.finish()
		client := newClient(broker.Options())
		defer client.Close()
		s.until(ctx, "nothing is unread or pending", func() bool {
			s.progress("done", s.ask(ctx, "HLEN", doneKey), pieces)
			return atEnd(ctx, client)
		})
		consumers.term()
		stop()
		done := s.count(ctx, "HLEN", doneKey)
		table = append(table, []any{part.how, pieces, done, pieces - done, repeated(ctx, s)})
	}
	s.table([]string{"what", "sent", "done", "lost", "done more than once"}, table...)
	s.conclude("all three pieces are needed, each covers another gap, and with all three a job may still come twice.")
}

// piecesProducer sends the jobs, one each millisecond.
func piecesProducer(ctx context.Context, w *worker) {
	broker := must(redis.ParseURL(w.args["broker"]))
	send := sendAndWait(broker)
	if w.has("forget") {
		send = sendAndForget(broker)
	}
	for job := 1; job <= pieces; job++ {
		send(ctx, job)
		check(w.redis.Set(ctx, sentKey, job, 0).Err())
		work(time.Millisecond)
	}
}

// sendAndWait repeats XADD until the broker has answered with an id. Where only the answer was lost the job is there twice.
func sendAndWait(opt *redis.Options) func(context.Context, int) {
	broker := newClient(opt)
	return func(ctx context.Context, job int) {
		for broker.XAdd(ctx, &redis.XAddArgs{Stream: eventsKey, Values: []any{"job", job}}).Err() != nil {
			work(5 * time.Millisecond)
		}
	}
}

// sendAndForget writes the command to the connection, makes a new connection where that fails, and never reads an answer.
func sendAndForget(opt *redis.Options) func(context.Context, int) {
	var conn net.Conn
	return func(_ context.Context, job int) {
		if conn == nil {
			conn, _ = net.Dial("tcp", opt.Addr)
		}
		if conn == nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "XADD %s * job %d\r\n", eventsKey, job); err != nil {
			conn.Close()
			conn = nil
		}
	}
}

// piecesConsumer lives through a broker that is away, and makes the group again where it is gone.
func piecesConsumer(ctx context.Context, w *worker) {
	broker := newClient(must(redis.ParseURL(w.args["broker"])))
	for sentSoFar(ctx, w.redis) < backlog {
		work(time.Millisecond)
	}
	id := "0"
	for !w.stopping() {
		reply, err := broker.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: group, Consumer: w.name, Streams: []string{eventsKey, id}, Count: 10, Block: 100 * time.Millisecond,
		}).Result()
		if err != nil && !isNil(err) {
			work(5 * time.Millisecond)
			broker.XGroupCreateMkStream(ctx, eventsKey, group, "0") // an error where it is there already, or the broker is away
			id = "0"
			continue
		}
		if len(reply) == 0 || len(reply[0].Messages) == 0 {
			id = ">"
			continue
		}
		for _, e := range reply[0].Messages {
			if w.has("early") {
				err = broker.XAck(ctx, eventsKey, group, e.ID).Err()
			}
			work(5 * time.Millisecond)
			w.done(ctx, e.Values["job"])
			if !w.has("early") {
				err = broker.XAck(ctx, eventsKey, group, e.ID).Err()
			}
			if err != nil {
				id = "0" // the broker was away, and may still be waiting for this acknowledgement: ask for what is pending
			}
		}
	}
}

func sentSoFar(ctx context.Context, client *redis.Client) int {
	n, err := client.Get(ctx, sentKey).Int()
	if !isNil(err) {
		check(err)
	}
	return n
}

// atEnd tells whether the group has been given all that is in the stream, and has acknowledged it.
func atEnd(ctx context.Context, broker *redis.Client) bool {
	info, err := broker.XInfoStream(ctx, eventsKey).Result()
	if err != nil {
		return false
	}
	for _, g := range must(broker.XInfoGroups(ctx, eventsKey).Result()) {
		if g.Name == group {
			return g.LastDeliveredID == info.LastGeneratedID && g.Pending == 0
		}
	}
	return false
}
