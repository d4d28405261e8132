package ops

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
)

func reader(vars map[string]string) *env.Reader {
	return env.NewReader(func(name string) string { return vars[name] })
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	r := reader(map[string]string{"LOG_LEVEL": "WARN", "API_TOKEN": "t0ken", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
	got := ReadConfig(r, ":8080")
	want := Config{HTTPAddr: ":8080", LogLevel: slog.LevelWarn, APIToken: "t0ken", TraceEndpoint: "http://collector:4318"}
	if got != want || r.Err() != nil {
		t.Errorf("ReadConfig = %+v, %v; want %+v", got, r.Err(), want)
	}
	r = reader(nil)
	if got, want := ReadConfig(r, ":1"), (Config{HTTPAddr: ":1"}); got != want || r.Err() != nil {
		t.Errorf("with nothing set: %+v, %v; want %+v", got, r.Err(), want)
	}
}

func TestBadValuesAreNamed(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"HTTP_ADDR":                   "8080",
		"LOG_LEVEL":                   "loud",
		"API_TOKEN":                   "two words",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
		"CONSUMER_NAME":               "two words",
		"BATCH_SIZE":                  "0",
		"CONCURRENCY":                 "many",
		"CLAIM_IDLE":                  "10ms",
		"HANDLER_TIMEOUT":             "0s",
		"MAX_ATTEMPTS":                "0",
		"MAX_DELIVERIES":              "-1",
		"RETRY_MIN":                   "0s",
		"RETRY_MAX":                   "1",
		"HANDLER_DELAY":               "-1s",
		"ACK_DELAY":                   "soon",
		"STREAM_RETENTION":            "0s",
		"OUTBOX_RETENTION":            "week",
		"PROCESSED_RETENTION":         "8d",
	} {
		r := reader(map[string]string{name: value})
		ReadConfig(r, ":8080")
		ReadConsumer(r, "bonus")
		ReadRetention(r, time.Minute)
		if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s=%q: %v; want an error that names it", name, value, err)
		}
	}
}

func TestReadConsumer(t *testing.T) {
	t.Parallel()
	r := reader(nil)
	got := ReadConsumer(r, "bonus")
	if got.Stream != "orders" || got.Group != "bonus" || got.Name != "" || got.BatchSize != 0 || got.HandlerTimeout != 0 || r.Err() != nil {
		t.Errorf("with nothing set: %+v, %v; want zeros, so that the engine's defaults hold", got, r.Err())
	}
	r = reader(map[string]string{
		"CONSUMER_NAME": "b1", "BATCH_SIZE": "10", "CONCURRENCY": "3", "CLAIM_IDLE": "2s", "HANDLER_TIMEOUT": "9s",
		"MAX_ATTEMPTS": "4", "MAX_DELIVERIES": "8", "RETRY_MIN": "10ms", "RETRY_MAX": "1s", "HANDLER_DELAY": "5s", "ACK_DELAY": "6s",
	})
	got = ReadConsumer(r, "bonus")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	if got.Name != "b1" || got.BatchSize != 10 || got.Concurrency != 3 || got.ClaimIdle != 2*time.Second ||
		got.HandlerTimeout != 9*time.Second || got.MaxAttempts != 4 || got.MaxDeliveries != 8 || got.RetryMin != 10*time.Millisecond ||
		got.RetryMax != time.Second || got.HandlerDelay != 5*time.Second || got.AckDelay != 6*time.Second {
		t.Errorf("ReadConsumer = %+v", got)
	}
}

func TestSettingsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	for want, vars := range map[string]map[string]string{
		"RETRY_MIN: ":     {"RETRY_MIN": "2s", "RETRY_MAX": "1s"},
		"HANDLER_DELAY: ": {"HANDLER_DELAY": "5s", "HANDLER_TIMEOUT": "5s"},
	} {
		r := reader(vars)
		ReadConsumer(r, "bonus")
		if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v; want %s", vars, err, want)
		}
	}
}

// Guarantee 16: a marker outlives every way in which its event can come again.
func TestRetentionContract(t *testing.T) {
	t.Parallel()
	r := reader(nil)
	got := ReadRetention(r, redisstream.Config{}.LongestBackoff())
	const day = 24 * time.Hour
	if want := (Retention{Stream: day, Outbox: 7 * day, Processed: 9 * day}); got != want || r.Err() != nil {
		t.Errorf("the defaults: %+v, %v; want %+v", got, r.Err(), want)
	}
	for _, test := range []struct {
		processed string
		backoff   time.Duration
		ok        bool
	}{
		{"100s", 9 * time.Second, true},
		{"100s", 10 * time.Second, false}, // equal is not more
		{"100s", time.Hour, false},
		{"90s", 0, false},
	} {
		r := reader(map[string]string{"STREAM_RETENTION": "30s", "OUTBOX_RETENTION": "60s", "PROCESSED_RETENTION": test.processed})
		ReadRetention(r, test.backoff)
		err := r.Err()
		if (err == nil) != test.ok {
			t.Errorf("PROCESSED_RETENTION=%s with backoff %s: %v, want ok %t", test.processed, test.backoff, err, test.ok)
			continue
		}
		if err == nil {
			continue
		}
		for _, name := range []string{"PROCESSED_RETENTION: ", "OUTBOX_RETENTION", "STREAM_RETENTION", "RETRY_MAX"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %s", err, name)
			}
		}
	}
}
