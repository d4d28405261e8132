package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/migrations"
)

// servers are where the works run.
type servers struct {
	redisURL, postgresURL string // as one who may do everything
	bin                   string // where the services' programs are
}

const database = "bench"

// Redis and Postgres tidy up between two runs (clear), and not in the middle of one: which contender a rewrite or a checkpoint meets
// would be chance, and whoever is quickest had it beside for most of its run.
var redisSettings = []string{"--auto-aof-rewrite-percentage", "0"}

// postgresSettings leave fsync on.
var postgresSettings = []string{"max_connections=300", "shared_buffers=256MB", "max_wal_size=8GB", "checkpoint_timeout=30min"}

// startServers starts a Redis with an append-only file (fsync every second) and a Postgres with fsync, and applies the
// project's migrations.
func startServers(ctx context.Context, dir string) (s *servers, stop func(), err error) {
	r, err := localserver.StartRedis(ctx, localserver.RedisConfig{Dir: filepath.Join(dir, "redis"), Args: redisSettings})
	if err != nil {
		return nil, nil, err
	}
	p, err := localserver.StartPostgres(ctx, localserver.PostgresConfig{Dir: filepath.Join(dir, "postgres"), Settings: postgresSettings})
	if err != nil {
		_ = r.Kill()
		return nil, nil, err
	}
	stop = func() {
		_ = r.Kill()
		_ = p.Stop()
		_ = os.RemoveAll(dir)
	}
	s = &servers{redisURL: r.URL(), postgresURL: p.DatabaseURL(database, "postgres", p.Password()), bin: filepath.Join(dir, "bin")}
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		stop()
		return nil, nil, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "create database "+database); err != nil {
		stop()
		return nil, nil, err
	}
	if err := migrations.Apply(ctx, s.postgresURL, slog.New(slog.DiscardHandler)); err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// as is the database's URL for one of the project's roles.
func (s *servers) as(role string) string {
	u, err := url.Parse(s.postgresURL)
	if err != nil {
		panic(err) // we made it
	}
	u.User = url.UserPassword(role, role)
	return u.String()
}

// env tells another process of this program of the servers, which has them with serversOfEnv.
func (s *servers) env() []string {
	return []string{"BENCH_REDIS=" + s.redisURL, "BENCH_POSTGRES=" + s.postgresURL, "BENCH_BIN=" + s.bin}
}

func serversOfEnv() *servers {
	return &servers{redisURL: os.Getenv("BENCH_REDIS"), postgresURL: os.Getenv("BENCH_POSTGRES"), bin: os.Getenv("BENCH_BIN")}
}

// options are for a new Redis client.
func (s *servers) options() *redis.Options {
	o, err := redis.ParseURL(s.redisURL)
	if err != nil {
		panic(err) // we made it
	}
	return o
}

// clear empties both servers between two runs.
func (s *servers) clear(ctx context.Context) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := rewrite(ctx, client); err != nil {
		return err
	}
	err := s.exec(ctx, `
		do $$
		declare name text;
		begin
			for name in select quote_ident(tablename) from pg_tables where schemaname = 'public' and tablename not like '%migration%' loop
				execute 'truncate ' || name || ' cascade';
			end loop;
		end $$`)
	if err != nil {
		return fmt.Errorf("truncate: %w", err)
	}
	return s.exec(ctx, "checkpoint")
}

// rewrite has Redis write its append-only file anew, and waits until that is done.
func rewrite(ctx context.Context, client *redis.Client) error {
	if err := client.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	for {
		state, err := client.InfoMap(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		p := state["Persistence"]
		if p["aof_rewrite_in_progress"] == "0" && p["aof_rewrite_scheduled"] == "0" {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// exec runs one statement as the database's owner.
func (s *servers) exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.postgresURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}
