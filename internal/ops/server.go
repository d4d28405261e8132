package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/orderfanout/internal/problem"
)

// The server's limits. A client that sends or reads more slowly than this is cut off.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 60 * time.Second
	maxHeaderBytes = 16 << 10
	// drainTimeout is how long Serve waits for running requests: no longer than one can take.
	drainTimeout = 20 * time.Second
)

// Router returns a router with /healthz, /readyz and /metrics, a span a request, a recoverer that answers 500 as a problem, and
// 404 and 405 as problems. Routes added to private ask for the API token. Routes for GET answer HEAD too.
func (s *Service) Router() (r chi.Router, private chi.Router) {
	mux := chi.NewRouter()
	mux.Use(s.observeRequest, s.recover, getForHead)
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem.New(http.StatusNotFound, "there is nothing at %.100q", r.URL.Path).Write(w)
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allow := strings.Join(allowed(mux, r.URL.Path), ", ")
		w.Header().Set("Allow", allow)
		problem.New(http.StatusMethodNotAllowed, "%.100q takes %s", r.URL.Path, allow).Write(w)
	})
	mux.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
	mux.Get("/readyz", s.serveReady)
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
	return mux, mux.With(s.requireToken)
}

func allowed(routes chi.Routes, path string) []string {
	var methods []string
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
			if method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return methods
}

// getForHead lets the routes for GET answer HEAD. chi's package of middleware has this, and a writer like statusWriter, but brings
// net/http/pprof and half a megabyte into every program.
func getForHead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			chi.RouteContext(r.Context()).RouteMethod = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// statusWriter remembers the status that was answered, 0 while none was.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// recover answers 500 for a handler that panics; what it was goes to the log only.
func (s *Service) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := &statusWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.Log.Error("panic", "method", r.Method, "path", r.URL.Path, "error", fmt.Sprint(p), "stack", string(debug.Stack()))
			if ww.status != 0 {
				panic(http.ErrAbortHandler) // too late for another answer: cut this one, so that it is not taken for whole
			}
			problem.New(http.StatusInternalServerError, "something went wrong on our side").Write(w)
		}()
		next.ServeHTTP(ww, r)
	})
}

// Serve answers HTTP on Config.HTTPAddr until ctx is done, then finishes what runs and returns nil. It logs the address
// that it listens on, as addr.
func (s *Service) Serve(ctx context.Context, h http.Handler) error {
	ln, err := net.Listen("tcp", s.cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.HTTPAddr, err)
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	s.Log.Info("listening", "addr", ln.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", s.cfg.HTTPAddr, err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		s.Log.Warn("requests cut off at the end", "error", err.Error())
		_ = srv.Close()
	}
	return nil
}
