package ops

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRouterSpeaksProblems(t *testing.T) {
	t.Parallel()
	s, log := newService(t, Config{})
	r, _ := s.Router()
	r.Get("/things/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "a thing") })
	r.Post("/things/{id}", func(http.ResponseWriter, *http.Request) { panic("s3cret") })
	for _, test := range []struct {
		method, path string
		status       int
		problem      bool
	}{
		{"GET", "/healthz", 200, false},
		{"GET", "/metrics", 200, false},
		{"GET", "/things/1", 200, false},
		{"HEAD", "/things/1", 200, false},
		{"GET", "/nothing", 404, true},
		{"DELETE", "/things/1", 405, true},
		{"POST", "/things/1", 500, true},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.status || (w.Header().Get("Content-Type") == "application/problem+json") != test.problem {
			t.Errorf("%s %s = %d %v, want %d, a problem: %t", test.method, test.path, w.Code, w.Header(), test.status, test.problem)
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("%s %s tells what is inside: %s", test.method, test.path, w.Body)
		}
		if test.status == 405 && w.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("Allow = %q", w.Header().Get("Allow"))
		}
	}
	if !strings.Contains(log.String(), "s3cret") || !strings.Contains(log.String(), `"stack"`) {
		t.Errorf("the panic is not in the log: %s", log)
	}
	metrics := get(t, r, "/metrics").Body.String()
	for _, want := range []string{
		`orderfanout_http_request_seconds_count{method="GET",route="/things/{id}",status="200"} 1`,
		`orderfanout_http_request_seconds_count{method="POST",route="/things/{id}",status="500"} 1`,
		`orderfanout_http_request_seconds_count{method="other",route="none",status="404"} 1`,
		`orderfanout_http_request_seconds_count{method="other",route="none",status="405"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// An answer that is half out is cut off, so that the client does not take it for whole.
func TestPanicAfterTheFirstByte(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	r, _ := s.Router()
	r.Get("/half", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic("broken")
	})
	srv := httptest.NewServer(r)
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL + "/half")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("body = %q without an error", body)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{APIToken: "t0ken"})
	r, private := s.Router()
	answer := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "yes") }
	r.Get("/open", answer)
	private.Get("/closed", answer)
	for _, test := range []struct {
		path, header string
		status       int
	}{
		{"/open", "", 200},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/metrics", "", 200},
		{"/closed", "", 401},
		{"/closed", "t0ken", 401},
		{"/closed", "Bearer t0ke", 401},
		{"/closed", "Bearer t0kenn", 401},
		{"/closed", "Basic t0ken", 401},
		{"/closed", "Bearer", 401},
		{"/closed", "Bearer t0ken", 200},
		{"/closed", "bearer  t0ken", 200},
	} {
		req := httptest.NewRequest("GET", test.path, nil)
		if test.header != "" {
			req.Header.Set("Authorization", test.header)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != test.status {
			t.Errorf("%s with %q = %d, want %d", test.path, test.header, w.Code, test.status)
		}
		if w.Code == 401 && (w.Header().Get("WWW-Authenticate") != "Bearer" || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s with %q: headers %v", test.path, test.header, w.Header())
		}
	}

	s, _ = newService(t, Config{})
	r, private = s.Router()
	private.Get("/closed", answer)
	if w := get(t, r, "/closed"); w.Code != 200 {
		t.Errorf("without a token set: %d, want 200", w.Code)
	}
}

// serve starts the service and returns its address.
func serve(t *testing.T, s *Service, log *lockedBuffer, h http.Handler) (addr string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, h) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() { _ = stop() })
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		line, _, ok := strings.Cut(log.String(), "\n")
		var fields struct{ Msg, Addr, Service string }
		if ok && json.Unmarshal([]byte(line), &fields) == nil && fields.Msg == "listening" {
			if fields.Service != "bonus" {
				t.Errorf("the log line lacks the service: %s", line)
			}
			return fields.Addr, stop
		}
	}
	t.Fatalf("not listening: %s", log)
	return "", nil
}

func TestServeFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	s, log := newService(t, Config{})
	entered, release := make(chan struct{}), make(chan struct{})
	r, _ := s.Router()
	r.Get("/slow", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if r.Context().Err() != nil {
			t.Error("the request's context ended with the service's")
		}
		_, _ = io.WriteString(w, "done")
	})
	addr, stop := serve(t, s, log, r)
	answer := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + addr + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		answer <- string(body)
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// The door is closed while the request still runs. (Another server may be given the port at once.)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		conn.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("Serve returned %v while a request ran", err)
	default:
	}
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("answer = %q", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

func TestServeTellsWhereItCannotListen(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, _ := newService(t, Config{HTTPAddr: ln.Addr().String()})
	if err := s.Serve(t.Context(), http.NotFoundHandler()); err == nil || !strings.HasPrefix(err.Error(), "listen on "+ln.Addr().String()) {
		t.Errorf("Serve = %v", err)
	}
}

// A client that sends a byte now and then is cut off, and so is one with endless headers.
func TestServeCutsSlowAndLargeClients(t *testing.T) {
	t.Parallel()
	s, log := newService(t, Config{})
	r, _ := s.Router()
	addr, _ := serve(t, s, log, r)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(start.Add(4 * headerTimeout))
	if _, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) || time.Since(start) >= 4*headerTimeout {
		t.Errorf("the slow client is still connected after %s", time.Since(start))
	}

	conn, err = net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 2*maxHeaderBytes)+"\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large headers: %v, %v; want 431", res, err)
	}
}
