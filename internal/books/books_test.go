package books_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/books"
	"example.com/orderfanout/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const retention = 9 * 24 * time.Hour

// world is a Postgres and a Redis as the services leave them. The books are read as the role and the user fanout.
type world struct {
	*testing.T
	db     *pgxpool.Pool // the owner
	redis  *redis.Client // the default user
	fanout struct {
		db    *pgxpool.Pool
		redis *redis.Client
	}
	cfg books.Config
}

// placed is an order with its event.
type placed struct {
	id, event, entry string
	total            int64
	at               time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t}
	url := servertest.Database(t)
	w.db, w.fanout.db = connect(t, url), connect(t, servertest.DatabaseAs(t, url, "fanout"))
	server := servertest.Redis(t)
	w.redis = redis.NewClient(server.Options())
	t.Cleanup(func() { _ = w.redis.Close() })
	w.makeUser()
	opts := server.Options()
	opts.Username, opts.Password = "fanout", "fanout"
	w.fanout.redis = redis.NewClient(opts)
	t.Cleanup(func() { _ = w.fanout.redis.Close() })
	for _, g := range books.Groups {
		w.do("XGROUP", "CREATE", "orders", g, "0", "MKSTREAM")
	}
	return w
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// makeUser gives Redis the user fanout of deploy/users.acl.
func (w *world) makeUser() {
	w.Helper()
	file, err := os.ReadFile("../../deploy/users.acl")
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		if words := strings.Fields(line); words[1] == "fanout" {
			args := []any{"ACL", "SETUSER"}
			for _, word := range words[1:] {
				args = append(args, word)
			}
			w.do(args...)
		}
	}
}

// exec runs a statement as the owner.
func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(context.Background(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// do runs a Redis command as the default user.
func (w *world) do(args ...any) any {
	w.Helper()
	reply, err := w.redis.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		w.Fatalf("%v: %v", args, err)
	}
	return reply
}

// accept stores an order and its event, not yet published.
func (w *world) accept(total int64) placed { return w.acceptAt(total, time.Now()) }

func (w *world) acceptAt(total int64, at time.Time) placed {
	w.Helper()
	p := placed{id: idAt(at), event: idAt(at), total: total, at: at.UTC()}
	w.exec(`insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
		values ($1, 'c', 'c@example.com', 'EUR', $2, 'placed', $3, $4)`, p.id, total, at, p.event)
	w.exec(`insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data)
		values ($1, '/orders', 'order.placed.v1', $2, $3, 'c', 'application/json', '', '', '{}')`, p.event, at, p.id)
	return p
}

// idAt is a UUIDv7 made at that time.
func idAt(at time.Time) string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// xadd adds the event to the stream once more.
func (w *world) xadd(p placed, more ...any) string {
	w.Helper()
	return w.do(append([]any{"XADD", "orders", "*", "id", p.event, "type", "order.placed.v1", "subject", p.id}, more...)...).(string)
}

// publish does what the relay does.
func (w *world) publish(p *placed) {
	w.Helper()
	p.entry = w.xadd(*p)
	w.exec(`update outbox set published_at = clock_timestamp(), entry_id = $2 where event_id = $1`, p.event, p.entry)
}

// take has a group read all that it has not read.
func (w *world) take(group string) {
	w.Helper()
	w.do("XREADGROUP", "GROUP", group, group+"-1", "COUNT", 1000, "STREAMS", "orders", ">")
}

func (w *world) ack(group string, entries ...string) {
	w.Helper()
	for _, e := range entries {
		w.do("XACK", "orders", group, e)
	}
}

// effect does a group's work, without the stream.
func (w *world) effect(group string, p placed) {
	w.Helper()
	switch group {
	case "mailer":
		w.do("SET", "mailer:sent:"+p.event, "sent", "EX", int(retention.Seconds()))
	case "bonus":
		w.exec(`
			with marker as (insert into processed (consumer, event_id) values ('bonus', $1)),
			ledger as (insert into bonus_ledger (event_id, order_id, customer_id, points) values ($1, $2, 'c', $3))
			insert into bonus_accounts as a values ('c', $3)
			on conflict (customer_id) do update set balance = a.balance + excluded.balance`, p.event, p.id, p.total/100)
	default:
		made := p.at.Truncate(24 * time.Hour)
		key := "analytics:{stats}:counted:" + made.Format(time.DateOnly)
		w.multi(append(counting(p),
			[]any{"SADD", key, p.event},
			[]any{"EXPIREAT", key, made.Add(24*time.Hour + retention).Unix()},
			[]any{"ZADD", "analytics:{stats}:days", p.at.Format("20060102"), p.at.Format(time.DateOnly)})...)
	}
}

// multi runs Redis commands as one.
func (w *world) multi(commands ...[]any) {
	w.Helper()
	pipe := w.redis.TxPipeline()
	for _, c := range commands {
		pipe.Do(context.Background(), c...)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// counting are the commands that add an order to the sums.
func counting(p placed) (commands [][]any) {
	for _, key := range []string{"analytics:{stats}:totals", "analytics:{stats}:day:" + p.at.Format(time.DateOnly)} {
		commands = append(commands, []any{"HINCRBY", key, "orders", 1}, []any{"HINCRBY", key, "revenue:EUR", p.total})
	}
	return commands
}

// count adds an order to the sums, whatever its marker says.
func (w *world) count(p placed) {
	w.Helper()
	w.multi(counting(p)...)
}

// credit adds a ledger row without a marker.
func (w *world) credit(event, order string, points int64) {
	w.Helper()
	w.exec(`insert into bonus_ledger (event_id, order_id, customer_id, points) values ($1, $2, 'c', $3)`, event, order, points)
	w.exec(`insert into bonus_accounts as a values ('c', $1) on conflict (customer_id) do update set balance = a.balance + excluded.balance`, points)
}

// finish has a group read, do and acknowledge the orders.
func (w *world) finish(group string, ps ...placed) {
	w.Helper()
	w.take(group)
	for _, p := range ps {
		w.effect(group, p)
		w.ack(group, p.entry)
	}
}

// done returns n orders that all groups have done.
func (w *world) done(n int) []placed {
	w.Helper()
	ps := make([]placed, n)
	for i := range ps {
		ps[i] = w.accept(int64(1250 + i))
		w.publish(&ps[i])
	}
	for _, g := range books.Groups {
		w.finish(g, ps...)
	}
	return ps
}

func (w *world) read() *books.Report {
	w.Helper()
	r, err := w.cfg.Read(context.Background(), w.fanout.db, w.fanout.redis)
	if err != nil {
		w.Fatal(err)
	}
	for _, g := range r.Groups {
		if sum := g.Done + g.Waiting.Orders() + g.Dead + g.InDoubt + g.Unknown + g.Lost; sum != r.Accepted || g.Accepted != r.Accepted {
			w.Errorf("%s: its parts make %d of %d orders: %s", g.Name, sum, r.Accepted, show(r))
		}
	}
	return r
}

// want reads the books and compares the figures that are named, all others must be as in balanced books.
func (w *world) want(verdict books.Verdict, figures map[string]int64) *books.Report {
	w.Helper()
	r := w.read()
	if r.Verdict() != verdict || r.Result != verdict {
		w.Errorf("verdict %s, want %s", r.Verdict(), verdict)
	}
	for _, g := range r.Groups {
		got := map[string]int64{
			"outbox": g.Waiting.Outbox, "unread": g.Waiting.Unread, "pending": g.Waiting.Pending, "dead": g.Dead, "foreign": g.DeadForeign,
			"doubt": g.InDoubt, "unknown": g.Unknown, "lost": g.Lost, "twice": g.Twice, "without": g.WithoutOrder,
			"differences": g.DifferenceCount, "repeats": g.Repeats,
		}
		for name, n := range got {
			if want := figures[g.Name+" "+name]; n != want {
				w.Errorf("%s %s = %d, want %d", g.Name, name, n, want)
			}
		}
	}
	if w.Failed() {
		w.Log(show(r))
	}
	return r
}

func show(r *books.Report) string {
	b, _ := json.MarshalIndent(r, "", " ")
	return string(b)
}

func hasItem(items []books.Item, p placed) bool {
	for _, i := range items {
		if i.EventID == p.event && i.OrderID == p.id {
			return true
		}
	}
	return false
}
