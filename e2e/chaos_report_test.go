package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/books"
)

// startShow prints how it goes, on a terminal in one line that changes. It returns a function that ends it.
func (w *chaosWorld) startShow(duration time.Duration) (stop func()) {
	terminal := false
	if info, err := os.Stdout.Stat(); err == nil {
		terminal = info.Mode()&os.ModeCharDevice != 0
	}
	every := 10 * time.Second
	if terminal {
		every = 500 * time.Millisecond
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		last, lastAt := 0, time.Now()
		for {
			select {
			case <-done:
				if terminal {
					fmt.Println()
				}
				return
			case <-tick.C:
			}
			orders, faults := w.counts()
			rate := float64(orders-last) / time.Since(lastAt).Seconds()
			last, lastAt = orders, time.Now()
			line := fmt.Sprintf("%4.0fs of %s  %d orders (%.0f/s)  %d faults  %s", time.Since(w.began).Seconds(), duration, orders, rate, faults, w.motion())
			if terminal {
				fmt.Printf("\r\033[K%.*s", 150, line)
			} else {
				fmt.Println(line)
			}
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended })
}

func (w *chaosWorld) counts() (orders, faults int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.byKind {
		faults += n
	}
	return len(w.accepted), faults
}

func (w *chaosWorld) motion() string {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	m, err := books.ReadMotion(ctx, w.db, w.client)
	if err != nil {
		return "Redis or Postgres does not answer"
	}
	return m.String()
}

// settle waits until nothing is under way and returns how long that took.
func (w *chaosWorld) settle(most time.Duration) time.Duration {
	began := time.Now()
	for time.Since(began) < most {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		m, err := books.ReadMotion(ctx, w.db, w.client)
		cancel()
		if err == nil && m.Settled() {
			return time.Since(began)
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.Errorf("%s after the last fault there is still work: %s", most, w.motion())
	return time.Since(began)
}

// report prints the books and fails the test where they do not balance.
func (w *chaosWorld) report(seed uint64, duration time.Duration, ended time.Time, settled time.Duration) {
	ctx := context.Background()
	r, err := books.Read(ctx, w.db, w.client)
	if err != nil {
		w.Fatal(err)
	}
	stored := map[string]bool{}
	rows, err := w.db.Query(ctx, "select id::text from orders")
	if err != nil {
		w.Fatal(err)
	}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			w.Fatal(err)
		}
		stored[id] = true
	}
	var lost, doubled int64
	for id := range w.accepted {
		if !stored[id] {
			lost++
			w.Errorf("a client was told that order %s is placed, and it is not stored", id)
		}
	}
	if len(stored) != len(w.accepted) {
		w.Errorf("%d orders are stored, clients were told of %d", len(stored), len(w.accepted))
	}
	mails, mailRepeats := w.mailCount()
	if unsent := len(stored) - (mails - mailRepeats); unsent != 0 {
		lost += int64(max(unsent, 0))
		w.Errorf("%d orders have no mail", unsent)
	}
	if r.Verdict() != books.Balanced {
		w.Errorf("the books are %s", r.Verdict())
	}
	var dead int64
	for _, g := range r.Groups {
		lost += g.Lost
		doubled += g.Twice
		dead += g.DeadForeign
	}
	if dead > 3*int64(w.poison) {
		w.Errorf("%d dead letters for %d poison entries", dead, w.poison)
	}
	slowest := w.slowestOrder()

	fmt.Printf("\n%d orders in %s, %d faults:\n", len(w.accepted), duration, func() int { _, n := w.counts(); return n }())
	for _, k := range faultKinds {
		if n := w.byKind[k.name]; n > 0 {
			fmt.Printf("  %4d  %s\n", n, k.name)
		}
	}
	fmt.Printf("a killed Redis had lost its last entries %d times\n", w.tailLost.Load())
	fmt.Printf("a client asked again %d times; the longest wait for a 201 was %s\n", w.unclear.Load(), time.Duration(w.slowest.Load()).Round(time.Millisecond))
	fmt.Printf("the longest way from an order to its bonus took %s; %s after the last fault all was done\n", slowest, settled.Round(10*time.Millisecond))
	fmt.Printf("repeats absorbed: %s; mails sent more than once: %d\n", w.absorbed(), mailRepeats)
	fmt.Printf("poison entries at most %d, dead letters %d\n", w.poison, dead)
	fmt.Printf("lost %d, done twice %d\n\n", lost, doubled)
	if w.Failed() || slowest.credited.Sub(slowest.placed) > curious {
		w.keep(r, seed, duration)
	}
}

// curious: a way to the bonus that takes longer than this is no failure, but all that tells why is kept.
const curious = 30 * time.Second

// slowOrder is the order that waited longest for its bonus.
type slowOrder struct {
	id                          string
	placed, published, credited time.Time // published is zero where Redis has lost that entry
}

func (o slowOrder) String() string {
	way := fmt.Sprintf("%s (%s", o.credited.Sub(o.placed).Round(time.Millisecond), o.id)
	if !o.published.IsZero() {
		way += fmt.Sprintf(", %s of it until its event was in Redis", max(o.published.Sub(o.placed), 0).Round(time.Millisecond))
	}
	return way + ")"
}

func (w *chaosWorld) slowestOrder() (o slowOrder) {
	ctx := context.Background()
	err := w.db.QueryRow(ctx, `
		select o.id::text, o.created_at, l.created_at
		from orders o join bonus_ledger l on l.order_id = o.id order by l.created_at - o.created_at desc limit 1`).Scan(&o.id, &o.placed, &o.credited)
	if err != nil {
		w.Errorf("the slowest order: %v", err)
		return o
	}
	entries, err := w.client.XRange(ctx, "orders", fmt.Sprint(o.placed.UnixMilli()), fmt.Sprint(o.credited.UnixMilli())).Result()
	if err != nil {
		w.Errorf("the slowest order's event: %v", err)
	}
	for _, e := range entries {
		if e.Values["subject"] == o.id {
			ms, _, _ := strings.Cut(e.ID, "-")
			at, err := strconv.ParseInt(ms, 10, 64)
			w.must(err)
			o.published = time.UnixMilli(at)
			break
		}
	}
	return o
}

// absorbed counts the deliveries that a service found done.
func (w *chaosWorld) absorbed() string {
	var parts []string
	for _, service := range chaosServices[1:] {
		n := 0
		for _, in := range w.instances {
			if in.service == service {
				n += strings.Count(in.log.String(), `"outcome":"duplicate"`)
			}
		}
		parts = append(parts, fmt.Sprintf("%s %d", service, n))
	}
	return strings.Join(parts, ", ")
}

// keep writes down what there is to look into, and says how to do it again.
func (w *chaosWorld) keep(r *books.Report, seed uint64, duration time.Duration) {
	w.quiet = true
	dir, err := os.MkdirTemp("", fmt.Sprintf("orderfanout-chaos-%d-", seed))
	if err != nil {
		w.Error(err)
		return
	}
	write := func(name string, data []byte) { w.must(os.WriteFile(filepath.Join(dir, name), data, 0o600)) }
	report, _ := json.MarshalIndent(r, "", "  ")
	write("books.json", report)
	var plan []byte
	for _, f := range newPlan(seed, duration) {
		plan = fmt.Appendf(plan, "%8s  %-40s %-10s %d  %s  %d\n", f.at.Round(time.Millisecond), f.kind, chaosServices[f.service], f.replica, f.lasts.Round(time.Millisecond), f.n)
	}
	write("plan.txt", plan)
	for i, in := range w.instances {
		write(fmt.Sprintf("%03d-%s-%s.log", i, in.service, in.name), []byte(in.log.String()))
	}
	ctx := context.Background()
	for _, key := range []string{"orders", "{orders}:dead:mailer", "{orders}:dead:bonus", "{orders}:dead:analytics"} {
		var lines []byte
		for at := "-"; ; {
			page, err := w.client.XRangeN(ctx, key, at, "+", 1000).Result()
			if err != nil || len(page) == 0 {
				break
			}
			for _, e := range page {
				line, _ := json.Marshal(e)
				lines = append(append(lines, line...), '\n')
			}
			at = "(" + page[len(page)-1].ID
		}
		write(strings.NewReplacer("{", "", "}", "", ":", "-").Replace(key)+".jsonl", lines)
	}
	for _, group := range books.Groups {
		pending, _ := w.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "orders", Group: group, Start: "-", End: "+", Count: 10_000}).Result()
		data, _ := json.MarshalIndent(pending, "", "  ")
		write("pending-"+group+".json", data)
	}
	conn, err := w.db.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		for _, table := range []string{"orders", "outbox", "outbox_relay", "processed", "bonus_ledger", "bonus_accounts"} {
			f, err := os.Create(filepath.Join(dir, table+".csv"))
			if err == nil {
				_, err = conn.Conn().PgConn().CopyTo(ctx, f, "copy "+table+" to stdout with csv header")
				_ = f.Close()
			}
			w.must(err)
		}
	}
	fmt.Printf("kept in %s; to repeat it: make chaos SEED=%d DURATION=%s\n", dir, seed, duration)
}

// tail returns the last n lines.
func (l *logBuffer) tail(n int) string {
	lines := slices.Collect(strings.Lines(l.String()))
	return strings.Join(lines[max(len(lines)-n, 0):], "")
}
