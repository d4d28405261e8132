package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/internal/smtpsink"
	"example.com/orderfanout/migrations"
)

var bin string // where the services are built, once a process

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "orderfanout-e2e-")
	if err == nil {
		bin, err = dir, build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(dir string) error {
	for _, program := range []string{"services/orders", "services/mailer", "services/bonus", "services/analytics", "cmd/fanout"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, filepath.Base(program)), ".")
		cmd.Dir = filepath.Join("..", program)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, out)
		}
	}
	return nil
}

// system is the whole system: a real Redis with the users of deploy/users.acl, a real Postgres with its roles, an SMTP server,
// and the services as processes.
type system struct {
	testing.TB
	redis    *localserver.Redis
	postgres *localserver.Postgres
	database string // URL, as owner
	client   *redis.Client
	db       *pgxpool.Pool
	mail     *smtpsink.Sink
	refuse   atomic.Bool // the SMTP server answers 550

	mu        sync.Mutex
	mails     map[string]int // by recipient
	messages  map[string]int // by Message-ID
	instances []*instance
}

// instance is one process of a service.
type instance struct {
	*localserver.Process
	service, name string
	url           string
	log           *logBuffer
	started       time.Time
}

const dbName = "orderfanout"

// newSystem starts the servers, and no service yet.
func newSystem(t testing.TB) *system {
	t.Helper()
	ctx := t.Context()
	s := &system{TB: t, mails: map[string]int{}, messages: map[string]int{}}
	acl, err := filepath.Abs("../deploy/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup
	starting.Go(func() {
		s.redis, err = localserver.StartRedis(ctx, localserver.RedisConfig{
			Dir: servertest.TempDir(t), ACLFile: acl, Username: "default", Password: "fanout"})
	})
	s.postgres = servertest.Postgres(t)
	starting.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.redis.Kill() })
	s.client = redis.NewClient(s.redis.Options())
	t.Cleanup(func() { _ = s.client.Close() })

	owner, err := pgxpool.New(ctx, s.postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	_, err = owner.Exec(ctx, "create database "+dbName)
	owner.Close()
	if err != nil {
		t.Fatal(err)
	}
	s.database = s.postgres.DatabaseURL(dbName, "postgres", "")
	if err := migrations.Apply(ctx, s.database, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if s.db, err = pgxpool.New(ctx, s.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.Close)
	s.mail, err = smtpsink.Start(smtpsink.Config{OnData: s.onMail})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.mail.Close() })
	t.Cleanup(s.stopAll)
	return s
}

func (s *system) onMail(_ int, _ string, to []string, data []byte) error {
	if s.refuse.Load() {
		return smtpsink.Reply(550, "no such user")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rcpt := range to {
		s.mails[rcpt]++
	}
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return err
	}
	s.messages[message.Header.Get("Message-ID")]++
	return nil
}

// mailCount is how many mails came, and repeats how many of them came more than once.
func (s *system) mailCount() (mails, repeats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.messages {
		mails += n
		repeats += n - 1
	}
	return mails, repeats
}

// run starts one process of a service under a consumer name and waits until it is ready.
func (s *system) run(service, name string, env ...string) *instance {
	s.Helper()
	in := s.launch(service, name, env...)
	s.eventually(service+" "+name+" is ready", func() bool {
		if !in.Running() {
			s.Fatalf("%s ended: %v\n%s", service, in.State(), in.log)
		}
		return in.ready()
	})
	return in
}

// launch is run without the waiting.
func (s *system) launch(service, name string, env ...string) *instance {
	s.Helper()
	addr := freeAddr(s)
	cmd := exec.Command(filepath.Join(bin, service))
	cmd.Env = append([]string{
		"HTTP_ADDR=" + addr,
		"CONSUMER_NAME=" + name,
		"CLAIM_IDLE=1s",
		"REDIS_URL=redis://" + service + ":" + service + "@" + s.redis.Addr(),
		"SMTP_URL=" + s.mail.URL(),
	}, env...)
	if service == "orders" || service == "bonus" {
		cmd.Env = append(cmd.Env, "DATABASE_URL="+s.postgres.DatabaseURL(dbName, service, service))
	}
	log := &logBuffer{}
	p, err := localserver.StartProcess(cmd, log, syscall.SIGKILL)
	if err != nil {
		s.Fatal(err)
	}
	in := &instance{p, service, name, "http://" + addr, log, time.Now()}
	s.instances = append(s.instances, in)
	return in
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stopAll ends what still runs; on a failure it shows the logs.
func (s *system) stopAll() {
	for _, in := range s.instances {
		_ = in.Signal(syscall.SIGCONT)
		_ = in.Signal(syscall.SIGTERM)
	}
	for _, in := range s.instances {
		if !in.Wait(20 * time.Second) {
			_ = in.Signal(syscall.SIGKILL)
		}
		if s.Failed() {
			s.Logf("log of %s %s:\n%s", in.service, in.name, in.log)
		}
	}
}

// kill ends a process as kill -9 does, and waits for its end.
func (s *system) kill(in *instance) {
	s.Helper()
	if err := in.Signal(syscall.SIGKILL); err != nil || !in.Wait(10*time.Second) {
		s.Fatal("kill", in.service, err)
	}
}

// term stops a process with SIGTERM and wants exit code 0.
func (s *system) term(in *instance, within time.Duration) {
	s.Helper()
	if err := in.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if !in.Wait(within) {
		s.Fatalf("%s %s did not end within %s", in.service, in.name, within)
	}
	if code := in.State().ExitCode(); code != 0 {
		s.Errorf("%s %s ended with %d, want 0", in.service, in.name, code)
	}
}

func (in *instance) ready() bool { return in.status("/readyz") == http.StatusOK }

func (in *instance) status(path string) int {
	res, err := http.Get(in.url + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// get reads a JSON answer.
func (s *system) get(url string, v any) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(v)
}

// order is the answer to POST /orders, as far as the tests need it.
type order struct {
	ID         string `json:"id"`
	CustomerID string `json:"customer_id"`
	Total      int64  `json:"total"`
}

var errStatus = errors.New("not 201")

// post places an order of n items at 12.50 for a customer.
func (s *system) post(orders *instance, customer string, n int) (order, *http.Response, error) {
	body := fmt.Sprintf(`{"customer_id":%q,"email":"%s@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":%d,"unit_price":1250}]}`, customer, customer, n)
	res, err := http.Post(orders.url+"/orders", "application/json", strings.NewReader(body))
	if err != nil {
		return order{}, nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return order{}, res, err
	}
	if res.StatusCode != http.StatusCreated {
		return order{}, res, fmt.Errorf("%w: %s %s", errStatus, res.Status, data)
	}
	var o order
	return o, res, json.Unmarshal(data, &o)
}

func (s *system) mustPost(orders *instance, customer string, n int) order {
	s.Helper()
	o, _, err := s.post(orders, customer, n)
	if err != nil {
		s.Fatal(err)
	}
	return o
}

func (s *system) eventually(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within 40s: %s", what)
		}
	}
}

// count runs a query that returns one number.
func (s *system) count(query string, args ...any) (n int64) {
	s.Helper()
	if err := s.db.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return n
}

// settled reports whether every event is published and every group has read and acknowledged all.
func (s *system) settled() bool {
	ctx := context.Background()
	if s.count("select count(*) from outbox where published_at is null") > 0 {
		return false
	}
	groups, err := s.client.XInfoGroups(ctx, "orders").Result()
	if err != nil || len(groups) < 3 {
		return false
	}
	for _, g := range groups {
		if g.Pending != 0 || g.Lag != 0 {
			return false
		}
	}
	return true
}

// stats is the answer of GET /stats, as far as the tests need it.
type stats struct {
	Orders  int64            `json:"orders"`
	Revenue map[string]int64 `json:"revenue"`
}

// balanced waits until all is settled and checks the books: each order credited, counted and confirmed once. mails may be
// repeated up to the given number.
func (s *system) balanced(analytics *instance, repeats int) {
	s.Helper()
	s.eventually("all is settled", s.settled)
	orders := s.count("select count(*) from orders")
	for what, query := range map[string]string{
		"outbox rows":    "select count(*) from outbox",
		"processed rows": "select count(*) from processed where consumer = 'bonus'",
		"ledger rows":    "select count(*) from bonus_ledger",
		"orders with their own ledger row and points": "select count(*) from orders o join bonus_ledger l on l.order_id = o.id and l.event_id = o.event_id and l.points = o.total / 100",
	} {
		if n := s.count(query); n != orders {
			s.Errorf("%d %s for %d orders", n, what, orders)
		}
	}
	if n := s.count(`select count(*) from bonus_accounts a where balance <> (select sum(points) from bonus_ledger l where l.customer_id = a.customer_id)`); n != 0 {
		s.Errorf("%d accounts differ from their ledger", n)
	}
	var st stats
	if err := s.get(analytics.url+"/stats", &st); err != nil {
		s.Fatal(err)
	}
	if sum := s.count("select coalesce(sum(total), 0) from orders"); st.Orders != orders || st.Revenue["EUR"] != sum {
		s.Errorf("statistics %+v, want %d orders and %d", st, orders, sum)
	}
	mails, again := s.mailCount()
	if int64(mails-again) != orders || again > repeats {
		s.Errorf("%d mails with %d repeats for %d orders, want at most %d repeats", mails, again, orders, repeats)
	}
}

// logBuffer keeps what a process printed.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// has reports whether a line has all the texts.
func (l *logBuffer) has(texts ...string) bool {
next:
	for line := range strings.Lines(l.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		return true
	}
	return false
}
