package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/crash"
)

// Main is a service's main: it runs run until SIGINT or SIGTERM, and exits 0 when it returned nil, 1 with its error on
// stderr otherwise. A second signal ends the process at once, with 1. With the one argument "healthcheck" it asks
// the running service's /readyz on HTTP_ADDR instead, for at most three seconds, and exits 0 where that answers 200. CRASH_AT
// names a point at which the process ends itself (internal/crash).
//
// Unless GOGC says otherwise the heap may grow to four times of what is in use before it is collected. A service has a few megabytes
// in use and gets tens of thousands of entries a second: at Go's default of twice, half of its time went to the collector.
func Main(run func(ctx context.Context, getenv func(string) string, stdout io.Writer) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
	// The client's own lines are not JSON, and what they say comes back to us as errors.
	redis.SetLogger(silent{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "second signal: ending at once")
		os.Exit(1)
	}()
	var err error
	if len(os.Args) == 2 && os.Args[1] == "healthcheck" {
		err = healthcheck(ctx, os.Getenv)
	} else if err = crash.Arm(os.Getenv("CRASH_AT")); err == nil {
		err = run(ctx, os.Getenv, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// healthcheck asks the service that runs on this machine with the same HTTP_ADDR.
func healthcheck(ctx context.Context, getenv func(string) string) error {
	addr := getenv("HTTP_ADDR")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("healthcheck: HTTP_ADDR %q is not host:port", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout+time.Second)
	defer cancel()
	url := "http://" + net.JoinHostPort(host, port) + "/readyz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	// No proxy: the service is on this machine, whatever the environment says.
	res, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // only for the message
	return errors.New("healthcheck: " + res.Status + " " + strings.TrimSpace(string(body)))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
