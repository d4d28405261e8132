package ops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver/servertest"
)

// figures are the lines of /metrics that begin with orderfanout_, by name and labels.
func figures(t *testing.T, s *Service) map[string]string {
	t.Helper()
	r, _ := s.Router()
	got := make(map[string]string)
	for line := range strings.Lines(get(t, r, "/metrics").Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "orderfanout_") {
			got[name] = value
		}
	}
	return got
}

func expect(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %q, want %q", name, got[name], value)
		}
	}
}

func TestObserveCounts(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	cfg := redisstream.Config{Stream: "orders", Group: "bonus", Handle: func(context.Context, *broker.Delivery) error { return nil }}
	s.Observe(&cfg)
	if cfg.Logger != s.Log {
		t.Error("the consumer does not use the service's logger")
	}
	expect(t, figures(t, s), map[string]string{`orderfanout_entries_total{group="bonus",outcome="dead"}`: "0"})
	cfg.Observe(&broker.Delivery{Delivery: 1}, broker.Done, time.Millisecond)
	cfg.Observe(&broker.Delivery{Delivery: 3}, broker.Duplicate, time.Millisecond)
	cfg.Observe(&broker.Delivery{Delivery: 1}, broker.Skipped, 0)
	expect(t, figures(t, s), map[string]string{
		`orderfanout_entries_total{group="bonus",outcome="done"}`:      "1",
		`orderfanout_entries_total{group="bonus",outcome="duplicate"}`: "1",
		`orderfanout_entries_total{group="bonus",outcome="skipped"}`:   "1",
		`orderfanout_entries_total{group="bonus",outcome="dead"}`:      "0",
		`orderfanout_redeliveries_total{group="bonus"}`:                "1",
		`orderfanout_handler_seconds_count{group="bonus"}`:             "2",
	})
}

func TestWatchGroup(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := redis.NewClient(server.Options())
	defer client.Close()
	ctx := t.Context()
	now, err := client.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	minutesAgo := func(m int) string {
		return fmt.Sprintf("%d-0", now.Add(-time.Duration(m)*time.Minute).UnixMilli())
	}
	add := func(stream, id string) {
		t.Helper()
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: id, Values: []string{"x", "y"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	watch := func() map[string]string {
		t.Helper()
		s, _ := newService(t, Config{})
		s.WatchGroup(server.Options(), "orders", "bonus")
		return figures(t, s)
	}

	// Nothing there yet.
	got := watch()
	expect(t, got, map[string]string{"orderfanout_redis_up": "1", `orderfanout_stream_entries{stream="orders"}`: "0", `orderfanout_dead_letters{group="bonus"}`: "0"})
	if _, ok := got[`orderfanout_group_pending{group="bonus"}`]; ok {
		t.Error("a group that is missing has figures")
	}

	for m := 5; m >= 1; m-- {
		add("orders", minutesAgo(m))
	}
	add(redisstream.DeadKey("orders", "bonus"), minutesAgo(60))
	if err := client.XGroupCreate(ctx, "orders", "bonus", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "bonus", Consumer: "ghost", Streams: []string{"orders", ">"}, Count: 2}).Err(); err != nil {
		t.Fatal(err)
	}
	got = watch()
	expect(t, got, map[string]string{
		`orderfanout_stream_entries{stream="orders"}`: "5",
		`orderfanout_group_lag{group="bonus"}`:        "3",
		`orderfanout_group_pending{group="bonus"}`:    "2",
		`orderfanout_dead_letters{group="bonus"}`:     "1",
	})
	for name, want := range map[string]float64{
		`orderfanout_group_oldest_pending_seconds{group="bonus"}`: 300,
		`orderfanout_group_oldest_unread_seconds{group="bonus"}`:  180,
		`orderfanout_dead_letters_oldest_seconds{group="bonus"}`:  3600,
	} {
		var age float64
		if _, err := fmt.Sscan(got[name], &age); err != nil || age < want || age > want+60 {
			t.Errorf("%s = %q, want about %g", name, got[name], want)
		}
	}

	// A deletion ahead of the group leaves Redis without a figure for the lag.
	if err := client.XDel(ctx, "orders", minutesAgo(2)).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, watch(), map[string]string{`orderfanout_group_lag{group="bonus"}`: "4"})
	if err := client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "bonus", Consumer: "ghost", Streams: []string{"orders", ">"}, Count: 9}).Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, watch(), map[string]string{
		`orderfanout_group_lag{group="bonus"}`:                   "0",
		`orderfanout_group_oldest_unread_seconds{group="bonus"}`: "0",
	})

	// An id from the future has no negative age.
	add("orders", "99999999999999-0")
	expect(t, watch(), map[string]string{`orderfanout_group_oldest_unread_seconds{group="bonus"}`: "0"})
}

// A Redis that hangs costs a scrape a second at most, and the rest of the page is there.
func TestWatchGroupWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	s, _ := newService(t, Config{})
	s.WatchGroup(server.Options(), "orders", "bonus")
	server.Pause()
	defer server.Resume()
	start := time.Now()
	expect(t, figures(t, s), map[string]string{"orderfanout_redis_up": "0"})
	if took := time.Since(start); took > 3*watchTimeout {
		t.Errorf("a scrape took %s", took)
	}
	start = time.Now()
	figures(t, s)
	if took := time.Since(start); took >= watchTimeout {
		t.Errorf("the next scrape took %s, so it asked again", took)
	}
}

func TestCheckRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := redis.NewClient(server.Options())
	defer client.Close()
	ctx := t.Context()
	set := func(policy string) {
		t.Helper()
		if err := client.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("noeviction")
	if err := CheckRedis(ctx, client); err != nil {
		t.Errorf("CheckRedis = %v, want nil", err)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		set(policy)
		if err := CheckRedis(ctx, client); err == nil || !strings.Contains(publicText(err), "maxmemory-policy "+policy) {
			t.Errorf("with %s: %v", policy, err)
		}
	}
	set("noeviction")
	if err := client.Do(ctx, "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := CheckRedis(ctx, client); err == nil || !strings.Contains(publicText(err), "takes no writes") {
		t.Errorf("on a replica: %v", err)
	}
	if err := client.Do(ctx, "replicaof", "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if err := CheckRedis(ctx, client); err != nil {
		t.Errorf("on a master again: %v", err)
	}
	server.Kill()
	if err := CheckRedis(ctx, client); err == nil || publicText(err) != "no connection" {
		t.Errorf("without a server: %v", err)
	}
}
