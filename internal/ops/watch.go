package ops

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
)

const (
	// watchTimeout bounds one look at Redis, so that a scrape gets its other figures while Redis is away.
	watchTimeout = time.Second
	// watchFresh is how long a look is good for, so that many scrapes do not mean many looks.
	watchFresh = 3 * time.Second
)

// WatchGroup adds to /metrics what Redis says about the stream and the group at scrape time: length, lag, pending, the
// age of the oldest pending entry and of the oldest that waits unread, and the dead letters. A scrape waits for at most a
// second; while Redis does not answer, orderfanout_redis_up is 0 and the others are left out.
func (s *Service) WatchGroup(opts *redis.Options, stream, group string) {
	o := *opts
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = watchTimeout, watchTimeout, watchTimeout, watchTimeout
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.PoolSize, o.MinIdleConns = true, -1, 1, 1, 0
	w := &groupWatch{client: redis.NewClient(&o), stream: stream, group: group}
	s.Metrics.MustRegister(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, w.client.Close)
}

var (
	redisUp        = prometheus.NewDesc("orderfanout_redis_up", "1 where Redis answered this scrape's questions, 0 otherwise.", nil, nil)
	streamLength   = prometheus.NewDesc("orderfanout_stream_entries", "Entries in the stream.", []string{"stream"}, nil)
	groupLag       = prometheus.NewDesc("orderfanout_group_lag", "Entries not yet delivered to the group; the stream's length where Redis cannot tell and there are some.", []string{"group"}, nil)
	groupWait      = prometheus.NewDesc("orderfanout_group_oldest_unread_seconds", "Age of the oldest entry not yet delivered to the group, 0 where there is none.", []string{"group"}, nil)
	groupPending   = prometheus.NewDesc("orderfanout_group_pending", "Entries delivered to the group and not yet acknowledged.", []string{"group"}, nil)
	groupPendingAt = prometheus.NewDesc("orderfanout_group_oldest_pending_seconds", "Age of the oldest entry that is pending, 0 where there is none.", []string{"group"}, nil)
	deadEntries    = prometheus.NewDesc("orderfanout_dead_letters", "Entries in the group's dead letters.", []string{"group"}, nil)
	deadAge        = prometheus.NewDesc("orderfanout_dead_letters_oldest_seconds", "Age of the oldest dead letter, 0 where there is none.", []string{"group"}, nil)
)

// groupWatch is the collector behind WatchGroup.
type groupWatch struct {
	client        *redis.Client
	stream, group string

	mu      sync.Mutex
	at      time.Time
	metrics []prometheus.Metric
}

func (w *groupWatch) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{redisUp, streamLength, groupLag, groupWait, groupPending, groupPendingAt, deadEntries, deadAge} {
		ch <- d
	}
}

func (w *groupWatch) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	if time.Since(w.at) > watchFresh {
		ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
		w.metrics = w.look(ctx)
		cancel()
		w.at = time.Now()
	}
	metrics := w.metrics
	w.mu.Unlock()
	for _, m := range metrics {
		ch <- m
	}
}

// look asks Redis. A group that is missing has no figures of its own.
func (w *groupWatch) look(ctx context.Context) []prometheus.Metric {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
		return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	dead := redisstream.DeadKey(w.stream, w.group)
	pipe := w.client.Pipeline()
	now := pipe.Time(ctx)
	length := pipe.XLen(ctx, w.stream)
	deadLength := pipe.XLen(ctx, dead)
	deadFirst := pipe.XRangeN(ctx, dead, "-", "+", 1)
	groups := pipe.XInfoGroups(ctx, w.stream)
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: w.stream, Group: w.group, Start: "-", End: "+", Count: 1})
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	if now.Err() != nil || length.Err() != nil {
		return []prometheus.Metric{gauge(redisUp, 0)}
	}
	out := []prometheus.Metric{gauge(redisUp, 1), gauge(streamLength, float64(length.Val()), w.stream)}
	if deadLength.Err() == nil && deadFirst.Err() == nil {
		age := 0.0
		if entries := deadFirst.Val(); len(entries) > 0 {
			age = entryAge(now.Val(), entries[0].ID)
		}
		out = append(out, gauge(deadEntries, float64(deadLength.Val()), w.group), gauge(deadAge, age, w.group))
	}
	for _, g := range groups.Val() {
		if g.Name != w.group {
			continue
		}
		out = append(out, gauge(groupPending, float64(g.Pending), w.group))
		if pending.Err() == nil {
			age := 0.0
			if entries := pending.Val(); len(entries) > 0 {
				age = entryAge(now.Val(), entries[0].ID)
			}
			out = append(out, gauge(groupPendingAt, age, w.group))
		}
		out = append(out, w.unread(ctx, gauge, now.Val(), g, length.Val())...)
	}
	return out
}

// unread tells what the group has not been given yet.
func (w *groupWatch) unread(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string) prometheus.Metric,
	now time.Time, g redis.XInfoGroup, length int64) []prometheus.Metric {
	lag, age := g.Lag, 0.0
	if lag != 0 {
		next, err := w.client.XRangeN(ctx, w.stream, "("+g.LastDeliveredID, "+", 1).Result()
		switch {
		case err != nil:
			return nil
		case len(next) == 0:
			lag = 0
		default:
			age = entryAge(now, next[0].ID)
		}
	}
	if lag < 0 { // after deletions Redis has no figure
		lag = length
	}
	return []prometheus.Metric{gauge(groupLag, float64(lag), w.group), gauge(groupWait, age, w.group)}
}

// entryAge is how long ago, on the server's clock, the entry was added; 0 for an id from the future.
func entryAge(now time.Time, id string) float64 {
	ms, _, _ := strings.Cut(id, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(at)).Seconds())
}
