package main

import (
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/internal/ops"
)

// stream is where the events go; groups are those that each get every one.
const stream = "orders"

var groups = []string{"mailer", "bonus", "analytics"}

// Connections. With the relay's LISTEN that is 14 a replica, so that three stay within the role's limit of 45.
const (
	requestConns    = 10 // where DATABASE_URL has no pool_max_conns
	backgroundConns = 3
)

// config is all that the service takes from its environment.
type config struct {
	ops.Config

	// Database is DATABASE_URL. Required. Its pool_max_conns bounds the connections for requests (default 10); relay, health and
	// clean-up use four more of their own, so that a rush of requests does not hold them up.
	Database *pgxpool.Config
	// Redis is REDIS_URL. Required.
	Redis *redis.Options
	// Retention is STREAM_RETENTION (24h) and OUTBOX_RETENTION (7d); it must fit PROCESSED_RETENTION (9d).
	Retention ops.Retention
	// StreamMaxLen is STREAM_MAX_LEN: entries beyond it are trimmed before their time; at twice as many the relay stops.
	// Default 1,000,000.
	StreamMaxLen int64
	// RepublishWindow is REPUBLISH_WINDOW: how far back Redis can have lost what it had acknowledged. Default 10 s.
	RepublishWindow time.Duration
}

func readConfig(getenv func(string) string) (config, error) {
	r := env.NewReader(getenv)
	cfg := config{
		Config: ops.ReadConfig(r, ":8080"),
		Redis:  ops.ReadRedis(r),
		// The consumers' own settings say how long an entry can wait for its retries.
		Retention:       ops.ReadRetention(r, ops.ReadConsumer(r, "").LongestBackoff()),
		StreamMaxLen:    int64(r.Int("STREAM_MAX_LEN", 1_000_000, 1, 1_000_000_000)),
		RepublishWindow: r.Duration("REPUBLISH_WINDOW", 10*time.Second, time.Millisecond),
	}
	databaseURL := r.URL("DATABASE_URL", "", "postgres", "postgresql")
	if err := r.Err(); err != nil {
		return config{}, err
	}
	var err error
	if cfg.Database, err = pgxpool.ParseConfig(databaseURL); err != nil {
		r.Fail("DATABASE_URL", "is not right (see https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#ParseConfig)")
	} else {
		setPool(cfg.Database, databaseURL)
	}
	return cfg, r.Err()
}

// setPool fills in what the URL leaves open.
func setPool(cfg *pgxpool.Config, databaseURL string) {
	if u, err := url.Parse(databaseURL); err == nil && !u.Query().Has("pool_max_conns") {
		cfg.MaxConns = requestConns
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = tryTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "orders"
	}
}

// backgroundPool is the pool for what is not a request.
func backgroundPool(cfg *pgxpool.Config) *pgxpool.Config {
	own := cfg.Copy()
	own.MaxConns, own.MinConns, own.MinIdleConns = backgroundConns, 0, 0
	return own
}
