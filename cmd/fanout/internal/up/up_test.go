package up

import (
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

func TestRunAndRunAgain(t *testing.T) {
	t.Parallel()
	cfg := fakeRoot(t)
	cfg.Env = map[string][]string{"bonus": {"HANDLER_DELAY=7s"}}
	first := start(t, cfg)
	first.await(t, "NAME", "orders    | serving", "mailer    | serving", "bonus     | serving", "analytics | serving")
	out := first.out.String()
	if table, log := strings.Index(out, "NAME"), strings.Index(out, "| serving"); table > log {
		t.Errorf("a log line stands before the table:\n%s", out)
	}
	for _, want := range []string{
		fmt.Sprintf("http://127.0.0.1:%d/orders", cfg.Orders),
		fmt.Sprintf("orders    | serving postgres://orders:orders@127.0.0.1:%d/orderfanout?sslmode=disable redis://orders:orders@127.0.0.1:%d/0 smtp://127.0.0.1:",
			cfg.Postgres, cfg.Redis),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	if !regexp.MustCompile(`bonus +\| serving .* delay=7s`).MatchString(out) || strings.Count(out, "delay=7s") != 1 {
		t.Errorf("the delay is not bonus's alone:\n%s", out)
	}

	if err := Run(t.Context(), t.Context(), cfg, &output{}); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a second Run: %v, want ErrRunning and the pid", err)
	}
	if _, err := Remove(cfg.Root); !errors.Is(err, ErrRunning) {
		t.Errorf("Remove meanwhile: %v, want ErrRunning", err)
	}

	database := fmt.Sprintf("postgres://orders:orders@127.0.0.1:%d/orderfanout?sslmode=disable", cfg.Postgres)
	execSQL(t, database, `insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data)
		values ('e', '', '', now(), '', '', '', '', '', '')`)
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", cfg.Redis), Username: "bonus", Password: "bonus"})
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	sink := regexp.MustCompile(`smtp://(\S+)`).FindStringSubmatch(out)[1]
	if err := smtp.SendMail(sink, nil, "a@example.com", []string{"ada@example.com"}, []byte("Subject: x\r\n\r\nhi\r\n")); err != nil {
		t.Fatal(err)
	}
	first.await(t, "mail to ada@example.com: .fanout/mail/")

	pids := killAll(t, cfg.Root, "bonus")
	first.await(t, "bonus ended (signal: killed), starting it again in 100ms", "bonus runs again")
	pids = append(pids, killAll(t, cfg.Root, "orders", "mailer", "analytics", "bonus")...)
	first.await(t, "orders runs again", "mailer runs again", "analytics runs again")
	first.awaitTimes(t, 2, "orders    | serving")

	first.stop()
	if err := <-first.done; err != nil {
		t.Errorf("stopped: %v\n%s", err, first.out)
	}
	first.done <- nil
	out = first.out.String()
	if drained, last := strings.LastIndex(out, "| drained"), strings.Index(out, "stopped; the data are kept"); drained < 0 || last < drained {
		t.Errorf("the end is out of order:\n%s", out)
	}
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}

	second := start(t, cfg)
	second.await(t, "NAME")
	if n := queryInt(t, database, `select count(*) from outbox`); n != 1 {
		t.Errorf("%d rows in the outbox after the second start, want 1", n)
	}
	if v, err := client.Get(t.Context(), "k").Result(); v != "v" {
		t.Errorf("k = %q, %v after the second start", v, err)
	}
	second.stop()
	if err := <-second.done; err != nil {
		t.Error(err)
	}
	second.done <- nil

	if found, err := Remove(cfg.Root); !found || err != nil {
		t.Errorf("Remove = %v, %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Root, ".fanout")); !os.IsNotExist(err) {
		t.Errorf(".fanout after Remove: %v", err)
	}
}

func TestHurryKillsWhatDoesNotDrain(t *testing.T) {
	t.Parallel()
	cfg := fakeRoot(t)
	cfg.Env = map[string][]string{"bonus": {"HANDLER_DELAY=for ever"}}
	r := start(t, cfg)
	r.await(t, "bonus     | serving")
	r.stop()
	r.await(t, "bonus     | not draining")
	r.hurry()
	if err := <-r.done; err == nil || !strings.Contains(err.Error(), "bonus had not drained") {
		t.Errorf("err = %v, want it to name bonus", err)
	}
	r.done <- nil
	if !strings.Contains(r.out.String(), "stopped; the data are kept") {
		t.Errorf("Redis and Postgres were not stopped in order:\n%s", r.out)
	}
}

func TestTakenPortsAreNamed(t *testing.T) {
	t.Parallel()
	cfg := fakeRoot(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Bonus))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg.Redis = cfg.Postgres
	err = Run(t.Context(), t.Context(), cfg, &output{})
	for _, want := range []string{strconv.Itoa(cfg.Bonus), "BONUS_PORT", "--bonus-port", "both redis and postgres"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want it to say %s", err, want)
		}
	}
}

func TestServiceThatDoesNotBuild(t *testing.T) {
	t.Parallel()
	cfg := fakeRoot(t)
	if err := os.WriteFile(filepath.Join(cfg.Root, "services/bonus/main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out output
	if err := Run(t.Context(), t.Context(), cfg, &out); err == nil || !strings.Contains(out.String(), "nonsense") {
		t.Errorf("err = %v, printed:\n%s", err, out.String())
	}
}

func killAll(t *testing.T, root string, names ...string) []int {
	t.Helper()
	var pids []int
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(root, ".fanout", name+".pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func execSQL(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func queryInt(t *testing.T, url, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
