package up

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

// fakeService stands in for a service: it says what it was given, is ready, and drains on SIGTERM unless it is told not to.
const fakeService = `package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 9)
	signal.Notify(stop, syscall.SIGTERM)
	l, err := net.Listen("tcp", os.Getenv("HTTP_ADDR"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			c.Close()
		}
	}()
	fmt.Println("serving", os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL"), os.Getenv("SMTP_URL"), "delay="+os.Getenv("HANDLER_DELAY"))
	<-stop
	if os.Getenv("HANDLER_DELAY") == "for ever" {
		fmt.Println("not draining")
		select {}
	}
	fmt.Print("drained")
}
`

// fakeRoot makes a checkout with fake services and returns a Config for it, on free ports.
func fakeRoot(t *testing.T) Config {
	t.Helper()
	root := servertest.TempDir(t)
	write := func(name, text string) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/fake\n\ngo 1.26.0\n")
	write("cmd/fanout/main.go", "package main\n\nfunc main() {}\n")
	write("go.work", "go 1.26.0\n\nuse (\n\t.\n\t./services/orders\n\t./services/mailer\n\t./services/bonus\n\t./services/analytics\n)\n")
	for _, name := range []string{"orders", "mailer", "bonus", "analytics"} {
		write("services/"+name+"/go.mod", "module example.com/fake/"+name+"\n\ngo 1.26.0\n")
		write("services/"+name+"/main.go", fakeService)
	}
	write("deploy/redis.conf", "# a comment\nappendonly yes\ndir /no/such\naclfile /no/such/users.acl\n")
	users := "user default on >fanout ~* &* +@all\n"
	for _, name := range []string{"orders", "mailer", "bonus", "analytics"} {
		users += "user " + name + " on >" + name + " ~* &* +@all\n"
	}
	write("deploy/users.acl", users)

	cfg := DefaultConfig()
	cfg.Root = root
	cfg.RestartAfter = 100 * time.Millisecond
	for _, p := range []*int{&cfg.Orders, &cfg.Mailer, &cfg.Bonus, &cfg.Analytics, &cfg.Redis, &cfg.Postgres} {
		port, err := localserver.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		*p = port
	}
	return cfg
}

// running is a Run at work.
type running struct {
	out         *output
	stop, hurry context.CancelFunc
	done        chan error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	hurry, kill := context.WithCancel(context.Background())
	r := &running{out: &output{}, stop: stop, hurry: kill, done: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- Run(ctx, hurry, cfg, r.out)
	}()
	t.Cleanup(func() {
		kill()
		stop()
		<-ended
	})
	return r
}

// output collects what is printed.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits until all texts are printed.
func (r *running) await(t *testing.T, texts ...string) {
	t.Helper()
	r.awaitTimes(t, 1, texts...)
}

// awaitTimes waits until all texts are printed n times.
func (r *running) awaitTimes(t *testing.T, n int, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		missing := ""
		for _, text := range texts {
			if strings.Count(r.out.String(), text) < n {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		select {
		case err := <-r.done:
			t.Fatalf("it ended (%v) before it printed %q:\n%s", err, missing, r.out)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has not printed %q:\n%s", missing, r.out)
		}
	}
}
