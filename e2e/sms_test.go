package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

// buildSMS builds testdata/sms as docs/adopt.md says: in a folder of its own, with a module of its own that requires orderfanout by
// replace. With mistakes it can also do what testdata/smsmistakes does: MISTAKE names which.
func buildSMS(t *testing.T, mistakes bool) (program string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := servertest.TempDir(t)
	files := map[string]string{
		"go.sum": read(t, "../go.sum"),
		"go.mod": "module example.org/sms\n\ngo 1.26.0\n\nrequire example.com/orderfanout v0.0.0\n\nreplace example.com/orderfanout => " + root + "\n",
	}
	for _, name := range []string{"main.go", "handler.go", "phones.go", "schema.sql"} {
		files[name] = read(t, filepath.Join("testdata/sms", name))
	}
	if mistakes {
		files["mistakes.go"] = read(t, "testdata/smsmistakes/mistakes.go")
		for name, change := range map[string][]string{
			"handler.go": {"h.note(ctx, d.ID", "h.noteOr(ctx, d.ID"},
			"main.go":    {"cfg.MaxConns = conns", "cfg.MaxConns = int32(connsOr())", "Concurrency: conns", "Concurrency: connsOr()"},
			"phones.go":  {`"cache:phone:" + customer`, "keyOr(customer)"},
		} {
			text := files[name]
			if files[name] = strings.NewReplacer(change...).Replace(text); files[name] == text {
				t.Fatalf("%s is unchanged", name)
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "sms", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "sms")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// makeSMS makes what sms needs beside its program: the user in Redis, and, as the owner, role and tables in Postgres.
func (s *system) makeSMS(program string) {
	s.Helper()
	args := []any{"ACL", "SETUSER"}
	user, err := os.ReadFile("testdata/sms/users.acl")
	for _, word := range strings.Fields(string(user))[1:] {
		args = append(args, word)
	}
	if err == nil {
		err = s.client.Do(context.Background(), args...).Err()
	}
	if err != nil {
		s.Fatal(err)
	}
	for range 2 { // it may be run again
		migrate := exec.Command(program, "migrate")
		migrate.Env = []string{"DATABASE_URL=" + s.database}
		if out, err := migrate.CombinedOutput(); err != nil {
			s.Fatalf("%v\n%s", err, out)
		}
	}
}

// startSMS starts it as its own user and role.
func (s *system) startSMS(program string, log *logBuffer, env ...string) (*localserver.Process, error) {
	cmd := exec.Command(program)
	cmd.Env = append([]string{
		"REDIS_URL=redis://sms:sms@" + s.redis.Addr(),
		"DATABASE_URL=" + s.postgres.DatabaseURL(dbName, "sms", "sms"),
		"CONSUMER_NAME=sms-1",
	}, env...)
	return localserver.StartProcess(cmd, log, syscall.SIGKILL)
}

// keepSMS starts it again whenever it was killed, as docs/labs/17-sms.md does, and has its process id in a file.
func (s *system) keepSMS(program, pidFile string, env ...string) (stop func()) {
	_ = os.Remove(pidFile)
	log, done := &logBuffer{}, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			p, err := s.startSMS(program, log, env...)
			if err == nil {
				err = os.WriteFile(pidFile, []byte(strconv.Itoa(p.Pid())), 0o600)
			}
			if err != nil {
				s.Error(err)
				return
			}
			select {
			case <-ctx.Done():
				_ = p.Signal(syscall.SIGKILL)
				<-p.Exited()
			case <-p.Exited():
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if s.Failed() {
			s.Logf("log of sms:\n%s", log)
		}
	}
}

// TestFourthConsumer follows docs/adopt.md: the program consumes the stream in a fourth group.
func TestFourthConsumer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	program := buildSMS(t, false)
	s.makeSMS(program)
	ctx := context.Background()
	if _, err := s.db.Exec(ctx, "insert into phones select 'c-' || i, '+44 7700 900' || 100 + i from generate_series(0, 18) i"); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	p, err := s.startSMS(program, &log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL); <-p.Exited() })

	orders := s.run("orders", "o")
	for i := range 20 { // c-19 has no number
		s.mustPost(orders, fmt.Sprintf("c-%d", i), 1)
	}
	s.eventually("each order has its message", func() bool { return s.count("select count(*) from sms") == 19 })
	// All that is in the stream again, under new ids: nothing more is sent.
	for _, m := range s.client.XRange(ctx, "orders", "-", "+").Val() {
		args := []any{"XADD", "orders", "*"}
		for k, v := range m.Values {
			args = append(args, k, v)
		}
		if err := s.client.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("all is acknowledged", func() bool {
		for _, g := range s.client.XInfoGroups(ctx, "orders").Val() {
			if g.Name == "sms" {
				return g.Pending == 0 && g.Lag == 0
			}
		}
		return false
	})
	if n := s.count("select count(distinct order_id) * 1000 + count(*) from sms"); n != 19019 {
		t.Errorf("%d, want 19 messages for 19 orders", n)
	}
	_ = p.Signal(syscall.SIGTERM)
	<-p.Exited()
	if code := p.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, log.String())
	}
}

// TestSMSCheck runs the check of docs/labs/17-sms.md on the reference solution, and on others with the mistakes that it is there to find.
func TestSMSCheck(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	judge := filepath.Join(servertest.TempDir(t), "smscheck")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", judge, "./labs/smscheck")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := buildSMS(t, true)
	s.makeSMS(program)
	pidFile := program + ".pid"
	orders := s.run("orders", "o")
	for _, c := range []struct {
		mistake string
		fails   string // what the line that says FAIL begins with
		long    bool
	}{
		{mistake: ""},
		{mistake: "acknowledged before the work", fails: "no order is lost"},
		{mistake: "marker first", fails: "no order is lost"},
		{mistake: "marker last", fails: "no order is done twice", long: true},
		{mistake: "no marker", fails: "no order is done twice", long: true},
		{mistake: "too many connections", fails: "connections", long: true},
		{mistake: "one key for all", fails: "each message goes to its customer", long: true},
		{mistake: "no cache", fails: "the cache", long: true}, // and nothing else: each number is read from Postgres
	} {
		if c.long && testing.Short() {
			continue
		}
		env := []string{"MISTAKE=" + c.mistake}
		if c.mistake == "no cache" {
			env = append(env, "CACHE_URL=redis://127.0.0.1:1")
		}
		stop := s.keepSMS(program, pidFile, env...)
		s.eventually("the group is there", func() bool {
			return s.client.XInfoConsumers(context.Background(), "orders", "sms").Err() == nil
		})
		out, err := exec.Command(judge, "--postgres", s.database, "--redis", s.redis.URL(), "--orders", orders.url,
			"--kill", "kill -9 $(cat "+pidFile+")", "-n", "60").CombinedOutput()
		text := string(out)
		passed, failed := strings.Count(text, "\nok    "), strings.Count(text, "\nFAIL  ")
		switch {
		case c.fails == "" && (err != nil || passed != 8):
			t.Errorf("the reference solution does not pass: %v\n%s", err, text)
		case c.fails != "" && (err == nil || passed != 7 || failed != 1 || !strings.Contains(text, "\nFAIL  "+c.fails+":")):
			t.Errorf("%s: %v, want the line %q alone to fail\n%s", c.mistake, err, c.fails, text)
		}
		stop()
	}
}
