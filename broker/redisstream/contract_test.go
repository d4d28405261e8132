package redisstream

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/brokertest"
)

func TestContract(t *testing.T) {
	brokertest.Run(t, func(t testing.TB) brokertest.Broker {
		w := newWorld(t)
		p, err := NewPublisher(w.server.Options(), PublisherConfig{Stream: testStream})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return &suite{p, w}
	})
}

// suite is a Redis stream as the suite wants a broker.
type suite struct {
	*Publisher
	*world
}

func (s *suite) Consume(t testing.TB, c brokertest.Consumer) (stop func()) {
	cfg := s.config(c.Handle)
	cfg.Group, cfg.Name, cfg.Types, cfg.HandleBatch = c.Group, c.Name, c.Types, c.HandleBatch
	cfg.BatchSize, cfg.Concurrency, cfg.MaxDeliveries, cfg.Observe = c.BatchSize, c.Concurrency, c.MaxDeliveries, c.Observe
	cfg.MaxAttempts = 3
	if c.MaxAttempts > 0 {
		cfg.MaxAttempts = c.MaxAttempts
	}
	if c.HandlerTimeout > 0 {
		cfg.HandlerTimeout = c.HandlerTimeout
	}
	return s.start(cfg)
}

func (s *suite) Strand(t testing.TB, group string, n int) int {
	streams, err := s.world.client.XReadGroup(context.Background(), &redis.XReadGroupArgs{
		Group: group, Consumer: brokertest.StrandName, Streams: []string{testStream, ">"}, Count: int64(n), Block: -1}).Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(streams[0].Messages)
}

func (s *suite) group(t testing.TB, name string) redis.XInfoGroup {
	groups, err := s.world.client.XInfoGroups(context.Background(), testStream).Result()
	if err != nil && !strings.Contains(err.Error(), "no such key") {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Name == name {
			return g
		}
	}
	return redis.XInfoGroup{Lag: -1} // not made yet
}

func (s *suite) Pending(t testing.TB, group string) int { return int(s.group(t, group).Pending) }
func (s *suite) Waiting(t testing.TB, group string) int { return int(s.group(t, group).Lag) }

func (s *suite) Dead(t testing.TB, group string) []brokertest.DeadLetter {
	messages, err := s.world.client.XRange(context.Background(), DeadKey(testStream, group), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var out []brokertest.DeadLetter
	for _, m := range messages {
		fields := map[string]string{}
		var list []string
		for k, v := range m.Values {
			fields[k], _ = v.(string)
			list = append(list, k, fields[k])
		}
		attempts, _ := strconv.Atoi(fields["dead_attempts"])
		out = append(out, brokertest.DeadLetter{
			Event: decode(list), Fields: fields, Reason: fields["dead_reason"], Error: fields["dead_error"], Attempts: attempts, EntryID: fields["dead_entry_id"]})
	}
	return out
}

func (s *suite) PublishRaw(t testing.TB, fields ...string) {
	if err := s.world.client.XAdd(context.Background(), &redis.XAddArgs{Stream: testStream, Values: fields}).Err(); err != nil {
		t.Fatal(err)
	}
}

var _ broker.Publisher = (*Publisher)(nil)
