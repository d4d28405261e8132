package main

import (
	"cmp"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/internal/ops"
)

const (
	// defaultConns is the size of the pool where DATABASE_URL has no pool_max_conns: three replicas stay within the role's limit
	// of 30.
	defaultConns = 8
	// connectTimeout bounds the start of a connection, where DATABASE_URL has no connect_timeout.
	connectTimeout = 2 * time.Second
)

// config is bonus' environment.
type config struct {
	ops.Config
	// Database is DATABASE_URL. Required. Its pool_max_conns bounds the connections, 8 by default; one is enough.
	Database *pgxpool.Config
	// Redis is REDIS_URL, redis:// or rediss://. Required.
	Redis *redis.Options
	// Retention has PROCESSED_RETENTION, how long a marker is kept.
	Retention ops.Retention
	// Consumer is how the stream is read: up to 500 events a statement by default, and two statements at a time, so that one is made
	// ready while Postgres is busy with the other.
	Consumer redisstream.Config
}

func readConfig(getenv func(string) string) (config, error) {
	r := env.NewReader(getenv)
	cfg := config{
		Config:   ops.ReadConfig(r, ":8082"),
		Database: readDatabase(r),
		Redis:    ops.ReadRedis(r),
		Consumer: ops.ReadConsumer(r, "bonus"),
	}
	cfg.Consumer.BatchSize = cmp.Or(cfg.Consumer.BatchSize, 500)
	cfg.Consumer.Concurrency = cmp.Or(cfg.Consumer.Concurrency, 2)
	cfg.Retention = ops.ReadRetention(r, cfg.Consumer.LongestBackoff())
	return cfg, r.Err()
}

func readDatabase(r *env.Reader) *pgxpool.Config {
	const name = "DATABASE_URL"
	v := r.URL(name, "", "postgres", "postgresql")
	u, err := url.Parse(v)
	if v == "" || err != nil {
		return nil // r.URL has said so
	}
	cfg, err := pgxpool.ParseConfig(v)
	if err != nil {
		r.Fail(name, "is not right (see https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#ParseConfig)")
		return nil
	}
	if !u.Query().Has("pool_max_conns") {
		cfg.MaxConns = defaultConns
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "bonus"
	}
	return cfg
}
