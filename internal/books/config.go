package books

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// Config says how the services are set whose books are read. The zero value is their defaults, which [Read] and
// [ReadMotion] take.
type Config struct {
	// ProcessedRetention is PROCESSED_RETENTION: how long the mailer and analytics remember what they have done.
	// Default 9 days. Where the marker sets of analytics say that it is less, that counts.
	ProcessedRetention time.Duration
	// RepublishWindow is REPUBLISH_WINDOW: how far before its last publish the relay publishes again where Redis may
	// have lost its tail. Default 10 s.
	RepublishWindow time.Duration
}

func (c Config) withDefaults() Config {
	if c.ProcessedRetention <= 0 {
		c.ProcessedRetention = 9 * 24 * time.Hour
	}
	if c.RepublishWindow <= 0 {
		c.RepublishWindow = 10 * time.Second
	}
	return c
}

// Read is [Config.Read] with the defaults.
func Read(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (*Report, error) {
	return Config{}.Read(ctx, db, client)
}

// ReadMotion is [Config.ReadMotion] with the defaults.
func ReadMotion(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (Motion, error) {
	return Config{}.ReadMotion(ctx, db, client)
}
