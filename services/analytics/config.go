package main

import (
	"cmp"

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
	// Consumer is how the stream is read: up to 300 events a script by default. Redis does nothing else meanwhile, some 3 ms.
	Consumer redisstream.Config
}

func readConfig(getenv func(string) string) (config, error) {
	r := env.NewReader(getenv)
	cfg := config{
		Config:   ops.ReadConfig(r, ":8083"),
		Redis:    ops.ReadRedis(r),
		Consumer: ops.ReadConsumer(r, "analytics"),
	}
	cfg.Consumer.BatchSize = cmp.Or(cfg.Consumer.BatchSize, 300)
	cfg.Retention = ops.ReadRetention(r, cfg.Consumer.LongestBackoff())
	return cfg, r.Err()
}
