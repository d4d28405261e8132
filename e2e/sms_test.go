package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

// TestFourthConsumer follows docs/adopt.md: a program in a folder of its own, with a module of its own that requires
// orderfanout by replace, consumes the stream in a fourth group.
func TestFourthConsumer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := servertest.TempDir(t)
	source, err := os.ReadFile("testdata/sms/main.go")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"main.go": string(source),
		"go.sum":  string(sums),
		"go.mod":  "module example.org/sms\n\ngo 1.26.0\n\nrequire example.com/orderfanout v0.0.0\n\nreplace example.com/orderfanout => " + root + "\n",
	} {
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
	ctx := context.Background()
	if _, err := s.db.Exec(ctx, "create table sms (order_id uuid, text text)"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "sms"))
	cmd.Env = []string{"REDIS_URL=" + s.redis.URL(), "DATABASE_URL=" + s.database}
	var log logBuffer
	p, err := localserver.StartProcess(cmd, &log, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL); <-p.Exited() })

	orders := s.run("orders", "o")
	for i := range 20 {
		s.mustPost(orders, fmt.Sprintf("c-%d", i), 1)
	}
	s.eventually("each order has its message", func() bool { return s.count("select count(*) from sms") == 20 })
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
	if n := s.count("select count(distinct order_id) * 1000 + count(*) from sms"); n != 20020 {
		t.Errorf("%d, want 20 messages for 20 orders", n)
	}
	_ = p.Signal(syscall.SIGTERM)
	<-p.Exited()
	if code := p.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, log.String())
	}
}
