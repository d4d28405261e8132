package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var order = lab{
	name:  "order",
	about: "order of all, or order per customer: one stream with four consumers, and four shards with one consumer each",
	run:   runOrder,
	roles: map[string]func(context.Context, *worker){"consumer": orderConsumer},
}

const (
	customers = 20
	shards    = 4
)

func runOrder(ctx context.Context, s *session) {
	s.step(ctx, "By hand: a shard for each customer's entries")
	for _, customer := range []string{"c-1", "c-2", "c-3"} {
		s.do(ctx, "XADD", shardKey(shardOf(customer)), "*", "customer", customer, "n", 1)
	}
	s.note("The number behind the colon is a hash of the customer's id, modulo %d: the same for each of the customer's entries.", shards)

	even, hot := makeEntries(s.random, 0), makeEntries(s.random, 50)
	var table [][]any
	for _, part := range []struct {
		how, title        string
		entries           []numbered
		shards, consumers int // consumers of each shard
	}{
		{"1 stream, 1 consumer", "1,000 entries of 20 customers, 0 to 3 ms each: one stream, one consumer", even, 1, 1},
		{"1 stream, 4 consumers", "The same: one stream, four consumers in one group", even, 1, 4},
		{"4 shards, 1 consumer each", "The same: four shards by customer, one consumer each", even, shards, 1},
		{"4 shards, a hot customer", "The same, but every second entry is customer c-1's", hot, shards, 1},
	} {
		s.clear(ctx)
		s.step(ctx, "%s", part.title)
		for shard := range part.shards {
			s.do(ctx, "XGROUP", "CREATE", shardKey(shard), group, 0, "MKSTREAM")
			f := &fleet{s: s, role: "order/consumer", args: []string{"stream=" + shardKey(shard), "drain"}}
			defer f.stop()
			f.start(ctx, part.consumers, 0)
		}
		load, busiest := make([]int, part.shards), 0
		pipe := s.redis.Pipeline()
		for _, e := range part.entries {
			shard := shardOf(e.customer) % part.shards
			load[shard]++
			busiest = max(busiest, load[shard])
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: shardKey(shard), Values: []any{"customer", e.customer, "n", e.n}})
		}
		s.note("counted beforehand, from the customers' ids alone: %v entries", load)
		begin := time.Now()
		must(pipe.Exec(ctx))
		s.until(ctx, "all are finished", func() bool {
			n := s.ask(ctx, "LLEN", finishedKey)
			s.progress("finished", n, jobs)
			return n == jobs
		})
		took := time.Since(begin)
		done := finishedEntries(ctx, s)
		within := 0
		for _, one := range byCustomer(done) {
			within += inversions(one)
		}
		table = append(table, []any{part.how, len(done), inversions(numbers(done)), within, busiest, int(jobs / took.Seconds())})
	}
	s.table([]string{"what", "finished", "wrong pairs, all", "wrong pairs within a customer", "busiest shard", "entries a second"}, table...)
	s.conclude("what must stay in order needs one consumer at a time, so choose the smallest thing that must, and count beforehand how much of all it is.")
}

// numbered is an entry: n says where it stands among all.
type numbered struct {
	customer string
	n        int
}

// makeEntries makes the entries of random customers; so many in a hundred are c-1's beyond its share.
func makeEntries(random *rand.Rand, hot int) []numbered {
	entries := make([]numbered, jobs)
	for i := range entries {
		customer := 1
		if random.IntN(100) >= hot {
			customer = 1 + random.IntN(customers)
		}
		entries[i] = numbered{fmt.Sprintf("c-%d", customer), i + 1}
	}
	return entries
}

// shardOf is where a customer's entries go: the same for each, whoever asks, on every machine.
func shardOf(customer string) int {
	h := fnv.New32a()
	h.Write([]byte(customer))
	return int(h.Sum32() % shards)
}

func shardKey(shard int) string { return fmt.Sprintf("%s:%d", eventsKey, shard) }

// orderConsumer reads one shard, and writes down what it has finished.
func orderConsumer(ctx context.Context, w *worker) {
	stream := w.args["stream"]
	for !w.stopping() {
		for _, e := range w.readStream(ctx, stream, group, ">") {
			n := must(strconv.ParseUint(e.Values["n"].(string), 10, 64))
			// The same entry takes the same time, whoever does it.
			work(time.Duration(rand.New(rand.NewPCG(n, 0)).IntN(3000)) * time.Microsecond)
			check(w.redis.RPush(ctx, finishedKey, fmt.Sprint(e.Values["customer"], " ", n)).Err())
			check(w.redis.XAck(ctx, stream, group, e.ID).Err())
		}
	}
}

// finishedEntries returns the entries in the order in which they were finished.
func finishedEntries(ctx context.Context, s *session) []numbered {
	var done []numbered
	for _, text := range must(s.redis.LRange(ctx, finishedKey, 0, -1).Result()) {
		customer, n, _ := strings.Cut(text, " ")
		done = append(done, numbered{customer, must(strconv.Atoi(n))})
	}
	return done
}

func numbers(entries []numbered) []int {
	var out []int
	for _, e := range entries {
		out = append(out, e.n)
	}
	return out
}

func byCustomer(entries []numbered) map[string][]int {
	out := map[string][]int{}
	for _, e := range entries {
		out[e.customer] = append(out[e.customer], e.n)
	}
	return out
}
