package redisstream

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// PublisherConfig says where a [Publisher] appends and when it refuses.
type PublisherConfig struct {
	// Stream is the key of the stream. Required.
	Stream string
	// MaxLen: at twice this length Publish returns [broker.ErrFull]. Default 1,000,000.
	MaxLen int64
}

// Publisher appends to a stream. It is a [broker.Publisher].
type Publisher struct{ cfg PublisherConfig }

// NewPublisher returns a publisher with a connection of its own, made with opts. Close it after use.
func NewPublisher(opts *redis.Options, cfg PublisherConfig) (*Publisher, error) {
	return &Publisher{cfg: cfg}, nil
}

// Publish implements [broker.Publisher].
func (p *Publisher) Publish(ctx context.Context, events []broker.Event, known broker.Position) (broker.Receipt, error) {
	return broker.Receipt{}, errors.New("not yet")
}

// Close closes the connection.
func (p *Publisher) Close() error { return nil }
