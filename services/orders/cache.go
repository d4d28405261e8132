package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// cacheExpiry is how long an order stays in the cache. Nothing changes an order once it is placed, so no copy is ever wrong.
	cacheExpiry = 60 * time.Second
	// cacheTimeout bounds each word with Redis: a cache that is slower than the database is of no use.
	cacheTimeout = 100 * time.Millisecond
	// cachePause is how long the cache is left alone after Redis gave no answer. Then one request asks again, so that
	// a Redis that hangs costs one request a second cacheTimeout, rather than every request.
	cachePause = time.Second
)

func cacheKey(id uuid.UUID) string { return "cache:order:" + id.String() }

// cache keeps orders in Redis for a while. It may miss at any time; it never fails a request.
type cache struct {
	client *redis.Client
	log    *slog.Logger
	quiet  calm
	// closedUntil is when Redis may be asked again, in nanoseconds of Unix time; 0 while it answers.
	closedUntil atomic.Int64
}

// newCache returns a cache with connections of its own. Close it after use.
func newCache(opts *redis.Options, log *slog.Logger) *cache {
	own := *opts
	own.DialTimeout, own.ReadTimeout, own.WriteTimeout, own.PoolTimeout = cacheTimeout, cacheTimeout, cacheTimeout, cacheTimeout
	own.ContextTimeoutEnabled = true
	own.MaxRetries = -1
	own.DialerRetries = 1
	return &cache{client: redis.NewClient(&own), log: log}
}

func (c *cache) close() error { return c.client.Close() }

// get returns the order as JSON, or nil where the cache does not have it.
func (c *cache) get(ctx context.Context, id uuid.UUID) []byte {
	if !c.open() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	data, err := c.client.Get(ctx, cacheKey(id)).Bytes()
	c.note(err)
	if err != nil || !json.Valid(data) { // somebody else may have written it
		return nil
	}
	return data
}

// put keeps the order for cacheExpiry.
func (c *cache) put(ctx context.Context, id uuid.UUID, data []byte) {
	if !c.open() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cacheTimeout)
	defer cancel()
	c.note(c.client.Set(ctx, cacheKey(id), data, cacheExpiry).Err())
}

// open reports whether Redis may be asked. After a pause it is true for one caller, whose success opens it for all.
func (c *cache) open() bool {
	until := c.closedUntil.Load()
	if until == 0 {
		return true
	}
	now := time.Now()
	return now.UnixNano() >= until && c.closedUntil.CompareAndSwap(until, now.Add(cachePause).UnixNano())
}

// note opens or closes the cache, after an answer of Redis or the lack of one. A refusal (read-only, out of memory, wrong type) is
// quick, and so costs nothing.
func (c *cache) note(err error) {
	var refusal redis.Error
	if err == nil || errors.Is(err, redis.Nil) || errors.As(err, &refusal) {
		c.closedUntil.Store(0)
	} else if !errors.Is(err, context.Canceled) { // a client that went away says nothing about Redis
		c.closedUntil.Store(time.Now().Add(cachePause).UnixNano())
	}
	if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) && c.quiet.due() {
		c.log.Warn("the cache is away: orders are read from the database", "error", err.Error())
	}
}
