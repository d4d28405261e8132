// Command cmd (migrate in the image) brings the database up to date once and ends.
//
//	DATABASE_URL   the database, as its owner. Required.
//	DATABASE_WAIT  how long it waits for a Postgres that does not answer yet; default 60s
//	LOG_LEVEL      debug, info (default), warn or error
//
// It exits 0 where the schema is up to date, whoever made it so, and 1 with the reason otherwise.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := env.NewReader(getenv)
	url := r.URL("DATABASE_URL", "", "postgres", "postgresql")
	limit := r.Duration("DATABASE_WAIT", time.Minute, 0)
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.String("LOG_LEVEL", "info"))); err != nil {
		r.Fail("LOG_LEVEL", "is not debug, info, warn or error")
	}
	if err := r.Err(); err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: level})).With("service", "migrate")

	if err := waitForDatabase(ctx, url, limit, log); err != nil {
		return err
	}
	return migrations.Apply(ctx, url, log)
}
