package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	code := servertest.Run(m)
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
	redisDir string
	postgres *localserver.Postgres
	database string // URL, as owner
	client   *redis.Client
	db       *pgxpool.Pool
	mail     *smtpsink.Sink
	refuse   atomic.Bool // the SMTP server answers 550

	quiet      bool         // the logs are kept elsewhere
	refuseWith atomic.Int32 // the SMTP server answers so; 0: it takes mail

	mu        sync.Mutex
	mails     map[string]int // by recipient
	messages  map[string]int // by Message-ID
	instances []*instance
}

const dbName = "orderfanout"

// newSystem starts the servers, and no service yet.
func newSystem(t testing.TB) *system {
	t.Helper()
	ctx := t.Context()
	s := &system{TB: t, redisDir: servertest.TempDir(t), mails: map[string]int{}, messages: map[string]int{}}
	acl, err := filepath.Abs("../deploy/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup
	starting.Go(func() {
		s.redis, err = localserver.StartRedis(ctx, localserver.RedisConfig{
			Dir: s.redisDir, ACLFile: acl, Username: "default", Password: "fanout"})
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
		return smtpsink.Reply(550, "no such user: "+strings.Join(to, " "))
	}
	if code := s.refuseWith.Load(); code != 0 {
		return smtpsink.Reply(int(code), "not now")
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
	pause := 5 * time.Millisecond // growing, so that many tests side by side leave the machine to what they wait for
	for deadline := time.Now().Add(40 * time.Second); !ok(); pause = min(pause*5/4, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within 40s: %s", what)
		}
		time.Sleep(pause)
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
