package ops

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/env"
)

// ReadRedis reads REDIS_URL, which is required: redis://[user:password@]host[:port][/database], or rediss:// for TLS.
func ReadRedis(r *env.Reader) *redis.Options {
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

// CheckRedis returns nil where the server answers, takes writes and keeps what it is given, and otherwise an error
// that wraps a [Reason]: a replica refuses every write while it answers PING, and a server that evicts keys may drop
// the stream with its groups, or a marker that keeps work from being done twice.
func CheckRedis(ctx context.Context, client *redis.Client) error {
	// CONFIG GET would tell the policy too, but a service's user need not be allowed it.
	info, err := client.Info(ctx, "memory", "replication").Result()
	if err != nil {
		return fmt.Errorf("ask redis: %w", err)
	}
	if role := infoField(info, "role"); role != "master" {
		return Reason(fmt.Sprintf("this Redis is a %s and takes no writes", role))
	}
	if policy := infoField(info, "maxmemory_policy"); policy != "noeviction" {
		return Reason(fmt.Sprintf("this Redis evicts keys (maxmemory-policy %s), so it may drop the stream or a marker: set maxmemory-policy noeviction", policy))
	}
	return nil
}

// infoField returns a field of an INFO reply, "" where it is missing.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == name {
			return v
		}
	}
	return ""
}
