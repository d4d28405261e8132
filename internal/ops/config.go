package ops

import (
	"log/slog"
	"net"
	"strings"

	"example.com/orderfanout/internal/env"
)

// Config is the part of the environment that every service has.
type Config struct {
	// HTTPAddr is HTTP_ADDR, where the service listens, as host:port. The default is the service's.
	HTTPAddr string
	// LogLevel is LOG_LEVEL: debug, info (default), warn or error.
	LogLevel slog.Level
	// APIToken is API_TOKEN: where set, every route but health, metrics and the OpenAPI document asks for it.
	// Default: open.
	APIToken string
	// TraceEndpoint is OTEL_EXPORTER_OTLP_ENDPOINT, the base URL of an OTLP/HTTP collector. Default: traces are passed
	// on but not exported.
	TraceEndpoint string
}

// ReadConfig reads the Config; addr is the default of HTTP_ADDR.
func ReadConfig(r *env.Reader, addr string) Config {
	cfg := Config{HTTPAddr: r.String("HTTP_ADDR", addr), APIToken: r.String("API_TOKEN", "")}
	if _, _, err := net.SplitHostPort(cfg.HTTPAddr); err != nil {
		r.Fail("HTTP_ADDR", "%q is not host:port", cfg.HTTPAddr)
	}
	switch level := strings.ToLower(r.String("LOG_LEVEL", "info")); level {
	case "debug", "info", "warn", "error":
		_ = cfg.LogLevel.UnmarshalText([]byte(level)) // knows these four
	default:
		r.Fail("LOG_LEVEL", "%q is not debug, info, warn or error", level)
	}
	// A header cannot carry anything else, so nobody could send it.
	if !visible(cfg.APIToken) {
		r.Fail("API_TOKEN", "has characters that are not visible ASCII")
	}
	if r.String("OTEL_EXPORTER_OTLP_ENDPOINT", "") != "" {
		cfg.TraceEndpoint = r.URL("OTEL_EXPORTER_OTLP_ENDPOINT", "", "http", "https")
	}
	return cfg
}

// visible reports whether s has visible ASCII characters only.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < '!' || c > '~' })
}
