package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/processed"
)

const (
	pruneEvery   = time.Minute
	pruneTimeout = 50 * time.Second
)

// prune deletes markers older than retention until ctx is done: at once, then every minute, less up to a quarter at random.
func prune(ctx context.Context, pool *pgxpool.Pool, retention time.Duration, log *slog.Logger) error {
	for {
		limited, cancel := context.WithTimeout(ctx, pruneTimeout)
		n, err := processed.Prune(limited, pool, consumer, retention)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Warn("markers are not pruned, trying again in a minute", "error", err.Error(), "pruned", n)
		case n > 0:
			log.Info("markers pruned", "pruned", n)
		}
		t := time.NewTimer(pruneEvery - rand.N(pruneEvery/4))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}
