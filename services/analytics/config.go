package main

import (
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/internal/ops"
)

// config is analytics' environment.
type config struct {
	ops.Config
	// Redis is REDIS_URL, redis:// or rediss://. Required.
	Redis *redis.Options
	// Retention has PROCESSED_RETENTION, how long a counted event is remembered, and so how late one may come.
	Retention ops.Retention
	// Consumer is how the stream is read.
	Consumer redisstream.Config
}

func readConfig(getenv func(string) string) (config, error) {
	r := env.NewReader(getenv)
	cfg := config{
		Config:   ops.ReadConfig(r, ":8083"),
		Redis:    readRedis(r),
		Consumer: ops.ReadConsumer(r, "analytics"),
	}
	cfg.Retention = ops.ReadRetention(r, cfg.Consumer.LongestBackoff())
	return cfg, r.Err()
}

func readRedis(r *env.Reader) *redis.Options {
	opts := &redis.Options{}
	if v := r.URL("REDIS_URL", "", "redis", "rediss"); v != "" {
		parsed, err := redis.ParseURL(v)
		if err != nil {
			r.Fail("REDIS_URL", "is not a Redis URL (redis://[user:password@]host[:port][/database])")
			return opts
		}
		opts = parsed
	}
	// Without it a cancelled handler or request would wait for the client's own time-outs.
	opts.ContextTimeoutEnabled = true
	return opts
}
