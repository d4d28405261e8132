package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

const (
	// cacheExpiry is how old a number may be: one that has changed is wrong for so long at most.
	cacheExpiry = time.Minute
	// cacheTimeout bounds each word with the cache: one that is slower than the database is of no use.
	cacheTimeout = 100 * time.Millisecond
)

// phones finds customers' numbers: in the cache, or else in Postgres. The cache may be away, slow or empty: then each number is read
// from Postgres, and nothing fails.
type phones struct {
	cache *redis.Client
	db    *pgxpool.Pool
}

func newPhones(opts *redis.Options, db *pgxpool.Pool) *phones {
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout, opts.PoolTimeout = cacheTimeout, cacheTimeout, cacheTimeout, cacheTimeout
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	return &phones{redis.NewClient(opts), db}
}

func (p *phones) close() { _ = p.cache.Close() }

// of returns a customer's number, or "" where there is none. That there is none is kept too: who is asked for often is asked for in vain often.
func (p *phones) of(ctx context.Context, customer string) (string, error) {
	key := "cache:phone:" + customer
	phone, err := p.cache.Get(ctx, key).Result()
	if err == nil {
		return phone, nil
	}
	err = p.db.QueryRow(ctx, "select phone from phones where customer_id = $1", customer).Scan(&phone)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err // not kept: it says nothing about the customer
	}
	_ = p.cache.Set(ctx, key, phone, cacheExpiry).Err()
	return phone, nil
}
