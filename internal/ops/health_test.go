package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newService(t *testing.T, cfg Config) (*Service, *lockedBuffer) {
	t.Helper()
	log := new(lockedBuffer)
	if cfg.HTTPAddr == "" {
		cfg.HTTPAddr = "127.0.0.1:0"
	}
	s, err := New("bonus", cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, log
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func readyz(t *testing.T, s *Service) (int, map[string]string) {
	t.Helper()
	r, _ := s.Router()
	w := get(t, r, "/readyz")
	var body struct {
		Status string
		Checks map[string]string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("decode %q: %v", w.Body, err)
	}
	if (body.Status == "ready") != (w.Code == 200) {
		t.Errorf("status %q goes with %d", body.Status, w.Code)
	}
	return w.Code, body.Checks
}

// TestShownCheckIsNoReason: what is only shown does not make the service unready.
func TestShownCheckIsNoReason(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	s.Ready("postgres", func(context.Context) error { return nil })
	s.Show("redis", func(context.Context) error { return Reason("this Redis is a slave and takes no writes") })
	code, checks := readyz(t, s)
	if want := map[string]string{"postgres": "ok", "redis": "this Redis is a slave and takes no writes"}; code != 200 || !reflect.DeepEqual(checks, want) {
		t.Errorf("%d %v; want 200 %v", code, checks, want)
	}
}

// TestShownCheckIsNotWaitedFor: /readyz answers soon while what is only shown hangs.
func TestShownCheckIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	s.Show("redis", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	began := time.Now()
	code, checks := readyz(t, s)
	if took := time.Since(began); code != 200 || checks["redis"] == "ok" || took >= readyTimeout {
		t.Errorf("%d %v after %s; want 200 before the check has timed out", code, checks, took)
	}
}

func TestReadyzNamesEachCheck(t *testing.T) {
	t.Parallel()
	s, log := newService(t, Config{})
	if code, checks := readyz(t, s); code != 200 || len(checks) != 0 {
		t.Errorf("without checks: %d %v", code, checks)
	}
	failing := true
	s.Ready("good", func(context.Context) error { return nil })
	s.Ready("secret", func(context.Context) error {
		if failing {
			return errors.New("password=s3cret does not work")
		}
		return nil
	})
	s.Ready("reason", func(context.Context) error {
		if failing {
			return fmt.Errorf("select from s3cret: %w", Reason("no migration has run yet"))
		}
		return nil
	})
	s.Ready("away", func(context.Context) error {
		if failing {
			return fmt.Errorf("ask: %w", &net.OpError{Op: "dial", Err: errors.New("s3cret refused")})
		}
		return nil
	})
	code, checks := readyz(t, s)
	want := map[string]string{"good": "ok", "secret": "failing (the log says why)", "reason": "no migration has run yet", "away": "no connection"}
	if code != 503 || !reflect.DeepEqual(checks, want) {
		t.Errorf("answer = %d %v, want 503 %v", code, checks, want)
	}
	readyz(t, s)
	if n := strings.Count(log.String(), "password=s3cret"); n != 1 {
		t.Errorf("the cause is in the log %d times after two requests, want once:\n%s", n, log)
	}
	failing = false
	if code, _ := readyz(t, s); code != 200 || strings.Count(log.String(), "check passes again") != 3 {
		t.Errorf("after the cause is gone: %d, log:\n%s", code, log)
	}
}

// A check that ignores its context must neither hold the answer nor pile up.
func TestReadyzNeverHangs(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	release := make(chan struct{})
	var runs atomic.Int32
	s.Ready("deaf", func(context.Context) error { runs.Add(1); <-release; return nil })
	s.Ready("patient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	s.Ready("good", func(context.Context) error { return nil })
	start := time.Now()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			code, checks := readyz(t, s)
			if code != 503 || checks["deaf"] != "no answer within 2s" || checks["patient"] != "no answer within 2s" || checks["good"] != "ok" {
				t.Errorf("answer = %d %v", code, checks)
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took > 2*readyTimeout {
		t.Errorf("took %s, want about %s: all checks at once", took, readyTimeout)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("the check that hangs runs %d times, want once", n)
	}
	close(release)
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, checks := readyz(t, s)
		if checks["deaf"] == "ok" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("checks = %v after the check came back", checks)
		}
	}
}
