// Command smscheck judges a consumer that somebody has added to the running system in a group of its own: docs/labs/17-sms.md. It looks
// at what the consumer did, not at how it is written. What others rarely see by luck it brings about: it holds a table locked until
// the consumer waits for it, and has it killed right there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

const stream = "orders"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "smscheck:", err)
		os.Exit(1)
	}
}

type check struct {
	orders, kill, name string
	number             int // of orders
	out                io.Writer
	db                 *pgxpool.Pool // as the owner
	redis              *redis.Client
	run                string   // in the names of this run's customers
	ids                []string // of its orders
	from               string   // the stream's last entry before them
	most               int      // connections of the role at a time
	failed             bool
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	c := &check{out: out, from: "0-0", run: strconv.FormatInt(time.Now().UnixMilli(), 36)}
	flags := flag.NewFlagSet("smscheck", flag.ExitOnError)
	postgres := flags.String("postgres", "", "the `URL` of Postgres, as the owner of the database (default that of make up)")
	redisURL := flags.String("redis", "redis://default:fanout@127.0.0.1:6390", "the `URL` of Redis, as the default user")
	flags.StringVar(&c.orders, "orders", "http://127.0.0.1:8080", "where orders are placed")
	flags.StringVar(&c.kill, "kill", "", "the shell `command` that kills the consumer as kill -9 does; something else starts it again")
	flags.StringVar(&c.name, "name", "sms", "the name of the consumer's group, its role in Postgres, and the table of its messages")
	flags.IntVar(&c.number, "n", 200, "how many orders to place")
	_ = flags.Parse(args)
	if password, err := os.ReadFile(".fanout/postgres.password"); *postgres == "" && err == nil {
		*postgres = "postgres://postgres:" + strings.TrimSpace(string(password)) + "@127.0.0.1:5440/orderfanout"
	}
	if c.kill == "" {
		return errors.New("say with --kill how your consumer is killed, such as --kill 'kill -9 $(cat sms.pid)'")
	}
	opts, err := redis.ParseURL(*redisURL)
	if err != nil {
		return err
	}
	c.redis = redis.NewClient(opts)
	defer c.redis.Close()
	if c.db, err = pgxpool.New(ctx, *postgres); err != nil {
		return err
	}
	defer c.db.Close()
	defer func() { // must
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	c.judge(ctx)
	if c.failed {
		return errors.New("not there yet")
	}
	return nil
}

func (c *check) judge(ctx context.Context) {
	limit := c.one(ctx, `select coalesce(max(rolconnlimit), 0) from pg_roles where rolname = $1`, c.name)
	must(c.redis.XInfoConsumers(ctx, stream, c.name).Err()) // names the group that is missing
	dead := c.redis.XLen(ctx, "{orders}:dead:"+c.name).Val()
	if last := c.redis.XRevRangeN(ctx, stream, "+", "-", 1).Val(); len(last) > 0 {
		c.from = last[0].ID
	}
	customers := max(c.number/10, 1) // whom nobody has seen, so that no number of theirs is cached
	_, err := c.db.Exec(ctx, `insert into phones (customer_id, phone) select $1 || i, '+44 7700 900' || 100 + i from generate_series(0, $2 - 1) i`, "sms-"+c.run+"-", customers)
	must(err)
	const reads = `select (coalesce(seq_scan, 0) + coalesce(idx_scan, 0))::int from pg_stat_user_tables where relname = 'phones'`
	c.end(ctx, c.sessions(ctx)) // a session tells its figures at the latest when it ends
	before := c.one(ctx, reads)

	c.interrupt(ctx, c.name, c.number/2, customers)
	c.interrupt(ctx, "processed", c.number-c.number/2, customers)
	unread, pending := c.settle(ctx, c.number)
	table := pgx.Identifier{c.name}.Sanitize()
	rows := ` from ` + table + ` where order_id::text = any($1)`
	had := c.one(ctx, `select count(distinct order_id)`+rows, c.ids) // now: what comes once more would do what was lost
	for _, e := range c.entries(ctx) {                               // the same events under new entry ids
		e.Values["onlygroup"] = c.name
		must(c.redis.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: e.Values}).Err())
	}
	fmt.Fprintln(c.out, "delivered all once more")
	if unread+pending == 0 {
		unread, pending = c.settle(ctx, 2*c.number)
	}
	c.end(ctx, c.sessions(ctx))
	read := c.one(ctx, reads) - before

	twice := c.one(ctx, `select count(*) from (select order_id`+rows+` group by order_id having count(*) > 1) x`, c.ids)
	wrong := c.one(ctx, `select count(*) from `+table+` m join orders o on o.id::text = m.order_id::text left join phones p using (customer_id)
		where m.order_id::text = any($1) and m.phone is distinct from p.phone`, c.ids)
	dead = c.redis.XLen(ctx, "{orders}:dead:"+c.name).Val() - dead
	others := c.one(ctx, `select sum(rolconnlimit) + current_setting('superuser_reserved_connections')::int from pg_roles where rolcanlogin and not rolsuper and rolconnlimit > 0`)
	room := c.one(ctx, `select current_setting('max_connections')::int`)
	owns := c.one(ctx, `select count(*) from pg_class where pg_get_userbyid(relowner) = $1`, c.name)

	c.say(had == c.number, "no order is lost: %d of %d have a message", had, c.number)
	c.say(twice == 0, "no order is done twice: %d have more than one message", twice)
	c.say(wrong == 0, "each message goes to its customer: %d do not", wrong)
	c.say(unread+pending+int(dead) == 0, "the group is done: %d unread, %d pending, %d dead letters", unread, pending, dead)
	c.say(limit > 0 && 3*c.most <= limit, "connections: up to %d at a time, so three replicas need %d; the role's limit is %d", c.most, 3*c.most, limit)
	c.say(others < room, "the budget: all limits and what is reserved make %d, below max_connections, %d", others, room)
	c.say(owns == 0, "the role owns nothing: %d tables and indexes", owns)
	c.say(read < c.number/2, "the cache: phones was read %d times for %d deliveries to %d customers", read, 2*c.number, customers)
}

// interrupt locks a table, places orders, and has the consumer killed where it waits for the lock: what it had in a transaction is gone,
// what it had committed stays.
func (c *check) interrupt(ctx context.Context, table string, n, customers int) {
	tx, err := c.db.Begin(ctx)
	must(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, `lock table `+pgx.Identifier{table}.Sanitize()+` in exclusive mode`)
	must(err)
	c.place(n, customers)
	waiting, since := 0, time.Now()
	until(ctx, 10*time.Second, func() bool { // all of its workers are there
		c.most = max(c.most, len(c.sessions(ctx)))
		now := c.one(ctx, `select count(*) from pg_locks l join pg_stat_activity a using (pid)
			where not l.granted and l.relation = $1::regclass and a.usename = $2`, pgx.Identifier{table}.Sanitize(), c.name)
		if now != waiting {
			waiting, since = now, time.Now()
		}
		return waiting > 0 && time.Since(since) > time.Second/2
	})
	held := c.sessions(ctx)
	fmt.Fprintf(c.out, "killed while %d of its sessions waited to write into %s\n", waiting, table)
	if out, err := exec.CommandContext(ctx, "sh", "-c", c.kill).CombinedOutput(); err != nil {
		must(fmt.Errorf("%s: %w\n%s", c.kill, err, out))
	}
	c.end(ctx, held) // a session that waits for a lock would not notice that its client is gone
}

// place places n orders, as many for one customer as for another.
func (c *check) place(n, customers int) {
	for i := range n {
		body := fmt.Sprintf(`{"customer_id":"sms-%s-%d","email":"sms@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":1,"unit_price":1250}]}`, c.run, i%customers)
		res, err := http.Post(c.orders+"/orders", "application/json", strings.NewReader(body))
		must(err)
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusCreated {
			must(fmt.Errorf("POST /orders: %s: %s", res.Status, answer))
		}
		c.ids = append(c.ids, res.Header.Get("Location")[len("/orders/"):])
	}
}

// entries are those of this run's orders.
func (c *check) entries(ctx context.Context) (ours []redis.XMessage) {
	all, err := c.redis.XRange(ctx, stream, "("+c.from, "+").Result()
	must(err)
	for _, e := range all {
		if id, _ := e.Values["subject"].(string); slices.Contains(c.ids, id) {
			ours = append(ours, e)
		}
	}
	return ours
}

// settle waits until n entries are in the stream and the group is done with all, and returns what it is not done with.
func (c *check) settle(ctx context.Context, n int) (unread, pending int) {
	until(ctx, time.Minute, func() bool {
		groups, err := c.redis.XInfoGroups(ctx, stream).Result()
		must(err)
		for _, g := range groups {
			if g.Name == c.name {
				rest, err := c.redis.XRange(ctx, stream, "("+g.LastDeliveredID, "+").Result()
				must(err)
				unread, pending = len(rest), int(g.Pending)
			}
		}
		return unread+pending == 0 && len(c.entries(ctx)) >= n
	})
	return unread, pending
}

// sessions are the role's, by their process ids.
func (c *check) sessions(ctx context.Context) []int32 {
	rows, err := c.db.Query(ctx, `select pid from pg_stat_activity where usename = $1`, c.name)
	must(err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	must(err)
	return pids
}

// end ends sessions, and waits until they are gone.
func (c *check) end(ctx context.Context, pids []int32) {
	c.one(ctx, `select count(pg_terminate_backend(pid)) from pg_stat_activity where pid = any($1)`, pids)
	until(ctx, 10*time.Second, func() bool {
		return c.one(ctx, `select count(*) from pg_stat_activity where pid = any($1)`, pids) == 0
	})
}

// one is the one number that a query returns.
func (c *check) one(ctx context.Context, sql string, args ...any) (n int) {
	must(c.db.QueryRow(ctx, sql, args...).Scan(&n))
	return n
}

func (c *check) say(ok bool, format string, args ...any) {
	verdict := "ok  "
	if !ok {
		verdict, c.failed = "FAIL", true
	}
	fmt.Fprintf(c.out, verdict+"  "+format+"\n", args...)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// until asks again and again, for as long as d at most.
func until(ctx context.Context, d time.Duration, ready func() bool) {
	for deadline := time.Now().Add(d); !ready() && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		must(ctx.Err())
	}
}
