package ops

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Service holds a service's logger, metrics, health and traces. Made by [New].
type Service struct {
	// Name is the service's name, as in logs and traces.
	Name string
	// Log writes JSON lines, each with the attribute service.
	Log *slog.Logger
	// Metrics is what /metrics shows; add the service's own collectors to it.
	Metrics *prometheus.Registry

	cfg      Config
	requests *prometheus.HistogramVec
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer

	mu     sync.Mutex
	checks []*check
	closed []func() error
}

// New makes the Service: the logger (JSON on stdout), the registry with the Go and process collectors, the tracer
// (exporting only where Config.TraceEndpoint is set). Close it after use.
func New(name string, cfg Config, stdout io.Writer) (*Service, error) {
	s := &Service{Name: name, Metrics: prometheus.NewRegistry(), cfg: cfg}
	s.Log = slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: orderID})).With("service", name)
	s.Metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.requests = requestMetrics(s.Metrics)
	if err := s.startTraces(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close flushes the traces, for at most five seconds, and closes what the Service opened.
func (s *Service) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs := []error{s.provider.Shutdown(ctx)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closed {
		errs = append(errs, f())
	}
	s.closed = nil
	if err := errors.Join(errs...); err != nil {
		s.Log.Warn("close", "error", err.Error())
	}
}

// orderID names the engine's "subject" as it is known here: the subject of every event is an order.
func orderID(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "subject" {
		a.Key = "order_id"
	}
	return a
}
