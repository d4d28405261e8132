// Package ops is what every service has around its work: start and stop, logs, health, metrics, traces.
package ops

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
)

// Main is a service's main: it runs run until SIGINT or SIGTERM and exits 0 when it returned nil, 1 with its error on
// stderr otherwise. A second signal ends the process at once. With the one argument "healthcheck" it asks the
// running service's /readyz on HTTP_ADDR instead and exits 0 where that answers 200.
func Main(run func(ctx context.Context, getenv func(string) string, stdout io.Writer) error) {}

// Config is the part of the environment that every service has.
type Config struct {
	// HTTPAddr is HTTP_ADDR, where the service listens.
	HTTPAddr string
	// LogLevel is LOG_LEVEL: debug, info (default), warn or error.
	LogLevel slog.Level
	// APIToken is API_TOKEN: where set, every route but health, metrics and the OpenAPI document asks for it.
	APIToken string
}

// ReadConfig reads the Config; addr is the default of HTTP_ADDR.
func ReadConfig(r *env.Reader, addr string) Config { return Config{} }

// ReadConsumer reads what a consumer of the group takes from the environment: CONSUMER_NAME, BATCH_SIZE,
// CONCURRENCY, CLAIM_IDLE, HANDLER_TIMEOUT, MAX_ATTEMPTS, MAX_DELIVERIES, RETRY_MIN, RETRY_MAX, HANDLER_DELAY, ACK_DELAY.
func ReadConsumer(r *env.Reader, group string) redisstream.Config { return redisstream.Config{} }

// Retention is how long things are kept.
type Retention struct{ Outbox, Stream, Processed int64 }

// Service holds a service's logger, metrics and health.
type Service struct {
	Name    string
	Log     *slog.Logger
	Metrics *prometheus.Registry
}

// New makes the Service: the logger (JSON on stdout), the registry with the Go and process collectors, the tracer
// (exporting only where OTEL_EXPORTER_OTLP_ENDPOINT is set).
func New(name string, cfg Config, stdout io.Writer) (*Service, error) { return nil, nil }

// Ready adds a check to /readyz. All checks run at once, each with two seconds.
func (s *Service) Ready(name string, check func(context.Context) error) {}

// Router returns a router with /healthz, /readyz and /metrics, a span a request, a recoverer that answers 500 as a problem, and
// 404 and 405 as problems. Routes added to private ask for the API token.
func (s *Service) Router() (r chi.Router, private chi.Router) { return nil, nil }

// Serve answers HTTP until ctx is done, then finishes what runs and returns nil.
func (s *Service) Serve(ctx context.Context, h http.Handler) error { return nil }

// Close flushes the traces.
func (s *Service) Close() {}

// Observe adds the consumer's metrics to cfg and a span to its handler.
func (s *Service) Observe(cfg *redisstream.Config) {}

var _ broker.Handler
