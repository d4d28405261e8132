package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	firstPause  = 100 * time.Millisecond
	longestWait = 2 * time.Second
	oneTry      = 5 * time.Second
)

// waitForDatabase returns nil once the database takes a connection. It tries for as long as limit, at least once, with growing
// pauses. A refused login or a missing database ends it at once: waiting does not help there.
func waitForDatabase(ctx context.Context, url string, limit time.Duration, log *slog.Logger) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	deadline := time.Now().Add(limit)
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		err := tryConnect(ctx, cfg)
		if err == nil || ctx.Err() != nil || hopeless(err) {
			return err
		}
		if time.Now().Add(pause).After(deadline) {
			return fmt.Errorf("waited %s for the database: %w", limit, err)
		}
		if pause == firstPause {
			log.Info("the database does not answer yet, waiting", "limit", limit.String(), "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the database: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

func tryConnect(ctx context.Context, cfg *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func hopeless(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (strings.HasPrefix(pgErr.Code, "28") || pgErr.Code == "3D000")
}
