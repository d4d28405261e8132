package main

import (
	"strings"
	"testing"
	"time"
)

func TestReadConfig(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://orders:secret@db/x", "REDIS_URL": "redis://:secret@cache:6379"}
	getenv := func(name string) string { return env[name] }
	cfg, err := readConfig(getenv)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Database.MaxConns != 10 || cfg.StreamMaxLen != 1_000_000 || cfg.Retention.Stream != 24*time.Hour || cfg.Retention.Outbox != 7*24*time.Hour ||
		cfg.RepublishWindow != 10*time.Second || cfg.HTTPAddr != ":8080" || cfg.Redis.Addr != "cache:6379" {
		t.Errorf("defaults: %+v, %d connections", cfg, cfg.Database.MaxConns)
	}
	env["DATABASE_URL"] += "?pool_max_conns=2"
	if cfg, err := readConfig(getenv); err != nil || cfg.Database.MaxConns != 2 {
		t.Errorf("%v", err)
	}
	for name, value := range map[string]string{"DATABASE_URL": "mysql://x", "REDIS_URL": "", "STREAM_MAX_LEN": "0", "STREAM_RETENTION": "1 day", "OUTBOX_RETENTION": "-1s",
		"REPUBLISH_WINDOW": "x", "PROCESSED_RETENTION": "8d", "HTTP_ADDR": "8080", "LOG_LEVEL": "loud"} {
		env := map[string]string{"DATABASE_URL": env["DATABASE_URL"], "REDIS_URL": env["REDIS_URL"]}
		env[name] = value
		_, err := readConfig(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%q: %v", name, value, err)
		}
	}
	// A URL that its own parser refuses is named too, and its password is not.
	for name, value := range map[string]string{"DATABASE_URL": "postgres://orders:secret@db/x?pool_max_conns=none", "REDIS_URL": "redis://:secret@cache/x"} {
		env := map[string]string{"DATABASE_URL": env["DATABASE_URL"], "REDIS_URL": env["REDIS_URL"]}
		env[name] = value
		_, err := readConfig(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConnectionBudget adds up what three replicas may open.
func TestConnectionBudget(t *testing.T) {
	t.Parallel()
	const listen = 1
	if most := 3 * (requestConns + backgroundConns + listen); most > 45 {
		t.Errorf("three replicas open up to %d connections", most)
	}
}
