package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/books"
	"example.com/orderfanout/internal/crash"
)

// prediction says what is where when a process has ended at a point, and what comes of it.
type prediction struct {
	// services are those of which one ends at the point.
	services []string
	// trouble makes the work take the way on which the point lies.
	trouble trouble
	// left returns what is wrong with what stands where, "" where all is as it should be. It is asked while the process is dead.
	left func(c *crashCase) string
	// repeatsMail: a mail that the server took before the process ended may go out once more.
	repeatsMail bool
	// absorbs: the work was done, so whoever comes next finds it done.
	absorbs bool
}

type trouble int

const (
	none    trouble = iota
	fails           // the handler returns an error until the process is dead
	junk            // an entry that cannot be decoded comes along
	claimed         // another consumer had read the entries, and is gone
)

// TestEveryCrashPoint ends a process at every point, with one order and with many in its hands, and lets the same consumer
// come back or another one take over. Then nothing is lost and nothing is done twice.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	byWorld := map[string][]string{}
	for _, point := range crash.Points {
		p, ok := predictions[point]
		if !ok {
			t.Errorf("nobody has said what a crash at %q leaves behind", point)
		}
		for _, service := range p.services {
			world := service
			if service == "orders" { // each case waits until the dead relay's lease has ended
				world = point
			}
			byWorld[world] = append(byWorld[world], point)
		}
	}
	for world, points := range byWorld {
		t.Run(world, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			w := &crashWorld{system: s, running: map[string]*instance{}}
			for _, name := range []string{"orders", "mailer", "bonus", "analytics"} {
				w.running[name] = s.run(name, "one", "CLAIM_IDLE=400ms")
			}
			service := world
			if len(predictions[world].services) > 0 {
				service = "orders"
			}
			inHand, comesNext := []int{1, 12}, []string{"one", "two"}
			if testing.Short() { // make proof tries them all
				inHand, comesNext = inHand[1:], comesNext[1:]
			}
			for _, point := range points {
				for _, orders := range inHand {
					for _, next := range comesNext {
						c := &crashCase{crashWorld: w, point: point, service: service, orders: orders, next: next}
						c.run()
						if t.Failed() {
							t.Fatalf("in the case %s, %d orders, %q comes next", point, orders, next)
						}
					}
				}
			}
		})
	}
}

// crashWorld is a system on which one case after the other is tried.
type crashWorld struct {
	*system
	running map[string]*instance
	dead    int64 // letters, for all groups together, that the cases have made

	allowedRepeats int // of mails, by the cases so far
}

type crashCase struct {
	*crashWorld
	point, service string
	orders         int
	next           string // consumer that does the work after the crash
	before         effects
	after          effects // at the crash
}

// effects is how much of everything there is.
type effects struct {
	orders, unpublished, entries, pending, ledger, mails, dead, failures, sending, sums int64
}

func (w *crashWorld) effects(group string) (e effects) {
	ctx := context.Background()
	e.orders = w.count("select count(*) from orders")
	e.unpublished = w.count("select count(*) from outbox where published_at is null")
	e.entries = w.client.XLen(ctx, "orders").Val()
	e.pending = w.pending(group)
	e.ledger = w.count("select count(*) from bonus_ledger")
	mails, _ := w.mailCount()
	e.mails = int64(mails)
	e.dead = w.client.XLen(ctx, "{orders}:dead:"+group).Val()
	e.failures = w.client.HLen(ctx, "{orders}:fail:"+group).Val()
	for _, key := range w.client.Keys(ctx, "mailer:sent:*").Val() {
		if strings.HasPrefix(w.client.Get(ctx, key).Val(), "sending") {
			e.sending++
		}
	}
	e.sums, _ = w.client.HGet(ctx, "analytics:{stats}:totals", "orders").Int64()
	return e
}

func (c *crashCase) run() {
	c.Helper()
	p := predictions[c.point]
	c.term(c.running[c.service], 20*time.Second)
	c.before = c.effects(c.service)
	env := []string{"CLAIM_IDLE=400ms", "RETRY_MIN=100ms", "CRASH_AT=" + c.point}
	var in *instance
	if c.service == "orders" {
		in = c.system.run("orders", "one", env...)
		c.place(in)
	} else {
		c.place(c.running["orders"])
		c.eventually("the orders are in the stream", func() bool {
			return c.count("select count(*) from outbox where published_at is null") == 0
		})
		c.disturb(p.trouble)
		in = c.launch(c.service, "one", env...)
	}
	if !in.Wait(20 * time.Second) {
		c.Fatalf("%s has not ended at %s\n%s", c.service, c.point, in.log)
	}
	if s, ok := in.State().Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL || !strings.Contains(in.log.String(), c.point) {
		c.Fatalf("%s ended otherwise: %v\n%s", c.service, in.State(), in.log)
	}
	c.after = c.effects(c.service)
	if wrong := p.left(c); wrong != "" {
		c.Errorf("at %s: %s\nbefore %+v\nafter  %+v", c.point, wrong, c.before, c.after)
	}
	c.calm(p.trouble)

	in = c.system.run(c.service, c.next, "CLAIM_IDLE=400ms", "RETRY_MIN=100ms")
	c.running[c.service] = in
	c.eventually("all is settled", c.settled)
	c.books(p)
	if p.absorbs && !in.log.has(`"outcome":"duplicate"`) {
		c.Errorf("nobody found the work done that was done before the crash at %s\n%s", c.point, in.log)
	}
}

// place posts the orders at once. Where the service dies on it, the client tries again with the same key, as it should.
func (c *crashCase) place(orders *instance) {
	c.Helper()
	var wg sync.WaitGroup
	for i := range c.orders {
		wg.Go(func() { _ = c.postWithKey(orders, i) })
	}
	wg.Wait()
}

// postWithKey posts the i-th order of the case and returns the error or the status.
func (c *crashCase) postWithKey(orders *instance, i int) error {
	customer := fmt.Sprintf("%s-%d-%s-%d", strings.ReplaceAll(c.point, ".", "-"), c.orders, c.next, i)
	body := fmt.Sprintf(`{"customer_id":%q,"email":"%s@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":1,"unit_price":1250}]}`, customer, customer)
	req, err := http.NewRequest(http.MethodPost, orders.url+"/orders", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", customer)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return fmt.Errorf("%w: %s", errStatus, res.Status)
	}
	return nil
}

// disturb makes the trouble that leads to the point.
func (c *crashCase) disturb(tr trouble) {
	c.Helper()
	ctx := context.Background()
	switch {
	case tr == fails && c.service == "mailer":
		c.refuseWith.Store(451)
	case tr == fails:
		c.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$`)
		c.exec(`create trigger refuse before insert on bonus_ledger for each row execute function refuse()`)
	case tr == junk:
		if err := c.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{
			"id", "junk-" + c.point + fmt.Sprint(c.orders) + c.next, "type", "order.placed.v1", "data", "{"}}).Err(); err != nil {
			c.Fatal(err)
		}
		c.dead += 3 // each group buries it
	case tr == claimed:
		if err := c.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: c.service, Consumer: "gone",
			Streams: []string{"orders", ">"}, Count: 1000, Block: time.Second}).Err(); err != nil {
			c.Fatal(err)
		}
	}
}

// calm ends the trouble.
func (c *crashCase) calm(tr trouble) {
	if tr != fails {
		return
	}
	c.refuseWith.Store(0)
	c.exec("drop trigger if exists refuse on bonus_ledger")
	c.exec("drop function if exists refuse()")
}

func (c *crashCase) exec(sql string) {
	c.Helper()
	if _, err := c.db.Exec(context.Background(), sql); err != nil {
		c.Fatal(err)
	}
}

// books checks that everything has been done once.
func (c *crashCase) books(p prediction) {
	c.Helper()
	if c.service == "orders" { // the clients whose request broke off ask again, and every order is there once
		for i := range c.orders {
			if err := c.postWithKey(c.running["orders"], i); err != nil {
				c.Error(err)
			}
		}
		c.eventually("all is settled", c.settled)
	}
	now := c.effects(c.service)
	if got := now.orders - c.before.orders; got != int64(c.orders) {
		c.Errorf("%d orders for %d", got, c.orders)
	}
	if now.ledger != now.orders || now.sums != now.orders {
		c.Errorf("%d orders, %d in the ledger, %d in the sums", now.orders, now.ledger, now.sums)
	}
	if got := c.count("select coalesce(sum(balance), 0) from bonus_accounts"); got != 12*now.orders {
		c.Errorf("%d points for %d orders, want 12 each", got, now.orders)
	}
	mails, repeats := c.mailCount()
	allowed := c.allowedRepeats
	switch {
	case p.repeatsMail && c.orders == 1:
		if allowed++; repeats != allowed {
			c.Errorf("%d mails have gone out twice by now, want %d", repeats, allowed)
		}
	case c.service == "mailer" && c.orders > 1: // the process sent others side by side
		allowed += int(c.after.sending)
	}
	if int64(mails-repeats) != now.orders || repeats > allowed {
		c.Errorf("%d mails with %d repeats for %d orders, want at most %d repeats", mails, repeats, now.orders, allowed)
	}
	c.allowedRepeats = repeats
	var dead int64
	for _, group := range []string{"mailer", "bonus", "analytics"} {
		dead += c.client.XLen(context.Background(), "{orders}:dead:"+group).Val()
	}
	if dead != c.dead {
		c.Errorf("%d dead letters, want %d", dead, c.dead)
	}
	if now.failures != 0 {
		c.Errorf("%d failures are left written down", now.failures)
	}
	r, err := books.Read(context.Background(), c.db, c.client)
	if err != nil {
		c.Fatal(err)
	}
	if r.Verdict() != books.Balanced {
		var text strings.Builder
		_ = r.Text(&text)
		c.Errorf("the books are %s:\n%s", r.Verdict(), &text)
	}
}

// TestCrashPointsAreDescribed: each point has its line in the docs.
func TestCrashPointsAreDescribed(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/crash-points.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range crash.Points {
		if !strings.Contains(string(doc), "\n| `"+point+"` |") {
			t.Errorf("docs/crash-points.md has no line for %s", point)
		}
	}
}
