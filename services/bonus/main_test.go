package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver/servertest"
)

// process is a bonus that runs as a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string // of its HTTP
	out  *output
}

func (w *world) start(t *testing.T, client *redis.Client, vars ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), out: &output{}}
	p.cmd.Env = append([]string{"RUN_BONUS=1", "CONSUMER_NAME=b1", "HTTP_ADDR=127.0.0.1:0", "CLAIM_IDLE=1s",
		"DATABASE_URL=" + w.url, "REDIS_URL=redis://" + client.Options().Addr}, vars...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the process said:\n%.10000s", p.out)
		}
	})
	poll(t, "the address", func() bool { p.addr = p.out.addr(); return p.addr != "" })
	poll(t, "the service to be ready", func() bool { return p.ready(t) })
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) ready(t *testing.T) bool {
	t.Helper()
	status, _ := p.get(t, "/readyz")
	return status == http.StatusOK
}

func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	res, err := http.Get("http://" + p.addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// output keeps what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// addr returns where the service says that it listens.
func (o *output) addr() string {
	for line := range strings.SplitSeq(o.String(), "\n") {
		var fields struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &fields) == nil && fields.Msg == "listening" {
			return fields.Addr
		}
	}
	return ""
}

func newRedis(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(servertest.Redis(t).Options())
	t.Cleanup(func() { client.Close() })
	return client
}

// publish adds the events to the stream.
func publish(t testing.TB, client *redis.Client, ds ...*broker.Delivery) {
	t.Helper()
	p, err := redisstream.NewPublisher(client.Options(), redisstream.PublisherConfig{Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for chunk := range slices.Chunk(ds, 500) {
		events := make([]broker.Event, len(chunk))
		for i, d := range chunk {
			events[i] = d.Event
		}
		if _, err := p.Publish(t.Context(), events, broker.Position{}); err != nil {
			t.Fatal(err)
		}
	}
}

// settled reports whether the group has nothing pending and nothing unread.
func settled(t testing.TB, client *redis.Client) bool {
	t.Helper()
	groups, err := client.XInfoGroups(t.Context(), "orders").Result()
	return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0
}

func dead(t testing.TB, client *redis.Client) []redis.XMessage {
	t.Helper()
	entries, err := client.XRange(t.Context(), redisstream.DeadKey("orders", "bonus"), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// The first kill of the tour: before the work is committed. The second: after it, before the acknowledgement.
func TestKills(t *testing.T) {
	t.Parallel()
	w, client := newWorld(t), newRedis(t)
	before := placed(t, "ada", 1000)
	p := w.start(t, client, "HANDLER_DELAY=20s")
	publish(t, client, before)
	poll(t, "the entry to be pending", func() bool {
		pending, err := client.XPending(t.Context(), "orders", "bonus").Result()
		return err == nil && pending.Count == 1
	})
	p.kill()
	if n := w.rows(t, "bonus_ledger"); n != 0 {
		t.Fatalf("%d ledger rows before the work", n)
	}
	p = w.start(t, client, "ACK_DELAY=1h")
	poll(t, "the work", func() bool { return w.rows(t, "bonus_ledger") == 1 })
	p.kill()
	w.url += "&pool_max_conns=1" // the smallest pool does
	p = w.start(t, client)
	poll(t, "the group to settle", func() bool { return settled(t, client) })
	poll(t, "the outcome in the log", func() bool { return strings.Contains(p.out.String(), `"outcome":"duplicate"`) })
	if got := w.balances(t)["ada"]; got != 10 {
		t.Errorf("balance %d, want 10", got)
	}
	if status, body := p.get(t, "/customers/ada/bonus"); status != http.StatusOK || !strings.HasPrefix(body, `{"customer_id":"ada","balance":10,`) {
		t.Errorf("%d %s", status, body)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// Two replicas work off a stream with repeats and garbage in it, and one or the other is killed all the time.
func TestKillLoop(t *testing.T) {
	t.Parallel()
	w, client := newWorld(t), newRedis(t)
	const n = 2000
	var all []*broker.Delivery
	want := make(map[string]int64)
	for i := range n {
		d := placed(t, customer(i%13), int64(i))
		want[customer(i%13)] += int64(i) / 100
		all = append(all, d)
		if i%10 == 0 {
			all = append(all, again(all[i/2]))
		}
	}
	all = append(all, delivery("garbage", []byte(`{"id":`)))
	publish(t, client, all[:n/2]...)
	vars := []string{"BATCH_SIZE=20", "HANDLER_DELAY=2ms"}
	first, second := w.start(t, client, vars...), w.start(t, client, append(vars, "CONSUMER_NAME=b2")...)
	publish(t, client, all[n/2:]...)
	for range 3 {
		goal := w.rows(t, "bonus_ledger") + 100
		poll(t, "some progress", func() bool { return w.rows(t, "bonus_ledger") >= min(goal, n) })
		first.kill()
		first = w.start(t, client, vars...)
		second.kill()
		second = w.start(t, client, append(vars, "CONSUMER_NAME=b2")...)
	}
	poll(t, "the group to settle", func() bool { return settled(t, client) })
	got := w.balances(t)
	for c, points := range want {
		if got[c] != points {
			t.Errorf("%s has %d, want %d", c, got[c], points)
		}
	}
	// All of it once more, with new ids in the stream.
	publish(t, client, all[:n]...)
	poll(t, "the group to settle", func() bool { return settled(t, client) })
	if after := w.balances(t); fmt.Sprint(after) != fmt.Sprint(got) {
		t.Errorf("a repeat changed the balances from %v to %v", got, after)
	}
	if letters := dead(t, client); len(letters) != 1 || !strings.Contains(fmt.Sprint(letters[0].Values["dead_error"]), "decode order.placed.v1") {
		t.Errorf("dead letters %v, want the garbage", letters)
	}
}

// Postgres refuses for a while: the service waits, counts nothing, says so in /readyz, and goes on.
func TestRefusedForAWhile(t *testing.T) {
	t.Parallel()
	w, client := newWorld(t), newRedis(t)
	p := w.start(t, client, "MAX_ATTEMPTS=1")
	w.exec(t, `revoke insert on bonus_ledger from bonus`)
	publish(t, client, placed(t, "ada", 1000), placed(t, "bob", 2000))
	poll(t, "the consumer to pause", func() bool { return strings.Contains(p.out.String(), "permission denied") })
	w.exec(t, `alter table processed rename to elsewhere`)
	w.exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = 'bonus'`)
	w.exec(t, `select pg_sleep(1)`)
	w.exec(t, `alter table elsewhere rename to processed`)
	w.exec(t, `grant insert on bonus_ledger to bonus`)
	poll(t, "the group to settle", func() bool { return settled(t, client) })
	if got := w.balances(t); got["ada"] != 10 || got["bob"] != 20 {
		t.Errorf("balances %v", got)
	}
	if letters := dead(t, client); len(letters) != 0 {
		t.Errorf("dead letters %v", letters)
	}
	if n := strings.Count(p.out.String(), "\n"); n > 40 {
		t.Errorf("%d log lines", n)
	}
}

// Without its schema the service starts, is not ready, and becomes so by itself.
func TestReadyWithSchema(t *testing.T) {
	t.Parallel()
	w, client := newWorld(t), newRedis(t)
	p := w.start(t, client)
	w.exec(t, `alter table schema_migrations rename to elsewhere`)
	status, body := p.get(t, "/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "run the migrations") {
		t.Errorf("%d %s", status, body)
	}
	w.exec(t, `alter table elsewhere rename to schema_migrations`)
	poll(t, "the service to be ready", func() bool { return p.ready(t) })
}

func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `
		insert into processed (consumer, event_id, processed_at)
		select 'bonus', i::text, now() - case when i <= 1500 then interval '2 hours' else interval '0' end from generate_series(1, 1600) i`)
	ctx := t.Context()
	done := make(chan error)
	go func() { done <- prune(ctx, w.store.pool, time.Hour, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	poll(t, "old markers to be gone", func() bool { return w.rows(t, "processed") == 100 })
	t.Cleanup(func() { <-done })
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	getenv := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	vars := map[string]string{"REDIS_URL": "redis://localhost:6379", "DATABASE_URL": "postgres://localhost/orderfanout"}
	cfg, err := readConfig(getenv(vars))
	if err != nil || cfg.HTTPAddr != ":8082" || cfg.Consumer.Group != "bonus" || cfg.Retention.Processed != 9*24*time.Hour ||
		cfg.Database.MaxConns != defaultConns || cfg.Database.ConnConfig.RuntimeParams["application_name"] != "bonus" {
		t.Errorf("defaults: %+v, %v", cfg, err)
	}
	vars["DATABASE_URL"] += "?pool_max_conns=2&application_name=x"
	if cfg, err = readConfig(getenv(vars)); err != nil || cfg.Database.MaxConns != 2 || cfg.Database.ConnConfig.RuntimeParams["application_name"] != "x" {
		t.Errorf("with a pool size: %+v, %v", cfg, err)
	}
	err = run(t.Context(), getenv(map[string]string{
		"REDIS_URL": "redis://secret@h/x", "DATABASE_URL": "postgres://u:secret@h/d?pool_max_conns=many", "PROCESSED_RETENTION": "8d",
	}), io.Discard)
	for _, name := range []string{"REDIS_URL", "DATABASE_URL", "PROCESSED_RETENTION"} {
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
}
