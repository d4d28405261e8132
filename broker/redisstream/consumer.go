package redisstream

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Consumer reads a stream in a consumer group.
type Consumer struct {
	cfg Config
}

// NewConsumer returns a consumer that opens connections of its own with opts.
func NewConsumer(opts *redis.Options, cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg}, nil
}

// Run consumes until ctx is done, then drains and returns nil.
func (c *Consumer) Run(ctx context.Context) error { return errors.New("not yet") }

// Check returns nil while the consumer makes progress, or says why it makes none. It asks nobody and returns at once.
func (c *Consumer) Check() error { return nil }
