package ops

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"example.com/orderfanout/internal/localserver/servertest"
)

// With OPS_TEST_RUN set the test binary is a service: what it names is its run.
func TestMain(m *testing.M) {
	switch os.Getenv("OPS_TEST_RUN") {
	case "":
		servertest.Main(m)
	case "drain":
		Main(func(ctx context.Context, _ func(string) string, stdout io.Writer) error {
			fmt.Fprintln(stdout, "up")
			<-ctx.Done()
			fmt.Fprintln(stdout, "drained")
			return nil
		})
	case "hang":
		Main(func(ctx context.Context, _ func(string) string, stdout io.Writer) error {
			fmt.Fprintln(stdout, "up")
			<-ctx.Done()
			fmt.Fprintln(stdout, "draining")
			select {}
		})
	case "fail":
		Main(func(context.Context, func(string) string, io.Writer) error { return errors.New("no such thing") })
	}
}

func program(t *testing.T, run string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "OPS_TEST_RUN="+run)
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	return cmd, stderr
}

func start(t *testing.T, run string) (*exec.Cmd, *bufio.Scanner, *bytes.Buffer) {
	t.Helper()
	cmd, stderr := program(t, run)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	expectLine(t, lines, "up")
	return cmd, lines, stderr
}

func expectLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("line = %q, %v; want %q", lines.Text(), lines.Err(), want)
	}
}

func TestMainDrainsOnSIGTERM(t *testing.T) {
	t.Parallel()
	cmd, lines, stderr := start(t, "drain")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expectLine(t, lines, "drained")
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("end: %v, stderr %q; want 0 and nothing", err, stderr)
	}
}

func TestMainEndsAtOnceOnASecondSignal(t *testing.T) {
	t.Parallel()
	cmd, lines, _ := start(t, "hang")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	expectLine(t, lines, "draining")
	_ = cmd.Process.Signal(os.Interrupt)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("end: %v, want exit 1", err)
	}
}

func TestMainTellsItsError(t *testing.T) {
	t.Parallel()
	cmd, stderr := program(t, "fail")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 || stderr.String() != "no such thing\n" {
		t.Errorf("end: %v, stderr %q; want exit 1 and the error", err, stderr)
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	var ready atomic.Int32
	ready.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(ready.Load()))
		fmt.Fprintln(w, `{"status":"?"}`)
	}))
	defer srv.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "http://"), ":")
	check := func(addr string) (string, error) {
		cmd, stderr := program(t, "fail", "healthcheck") // run is never reached
		cmd.Env = append(cmd.Env, "HTTP_ADDR="+addr)
		err := cmd.Run()
		return stderr.String(), err
	}
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "127.0.0.1:" + port, "[::]:" + port} {
		if text, err := check(addr); err != nil {
			t.Errorf("healthcheck of %s: %v, %q", addr, err, text)
		}
	}
	ready.Store(http.StatusServiceUnavailable)
	if text, err := check(":" + port); err == nil || !strings.Contains(text, `503 Service Unavailable {"status":"?"}`) {
		t.Errorf("healthcheck of a service that is not ready: %v, %q", err, text)
	}
	srv.Close()
	if text, err := check(":" + port); err == nil || text == "" {
		t.Errorf("healthcheck of a service that is away: %v, %q", err, text)
	}
	if text, err := check(""); err == nil || !strings.Contains(text, "HTTP_ADDR") {
		t.Errorf("healthcheck without HTTP_ADDR: %v, %q", err, text)
	}
}
