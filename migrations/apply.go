package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// lockKey is the advisory lock that one Apply at a time holds in a database.
const lockKey = 0x6f72646572 // "order"

// Apply makes the roles and brings the schema up to Latest. Where another Apply works on the same database it waits for
// that one, until ctx is done. An ErrDirty, which says what to do, and an ErrNewer leave the schema as it is.
// Where ctx is done during a migration, that one is finished first. The URL's user must own the database and be allowed to make roles.
func Apply(ctx context.Context, url string, log *slog.Logger) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	// All on one session. If this program is killed, the lock lasts as long as what it left running.
	db.SetMaxOpenConns(1)
	if err := apply(ctx, db, log); err != nil {
		return fmt.Errorf("apply migrations to database %s: %w", cfg.Database, err)
	}
	return nil
}

func apply(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	// A session whose program was killed ends within a second and rolls back, also when it waits for a lock. Postgres
	// before 14 and some systems cannot do that, and then it ends by itself later.
	db.ExecContext(ctx, `set client_connection_check_interval = '1s'`)
	if err := lock(ctx, db, log); err != nil {
		return err
	}
	if err := makeRoles(ctx, db); err != nil {
		return fmt.Errorf("make roles: %w", err)
	}
	return up(ctx, db, log)
}

// lock takes the lock; it ends with the session. It tries again and again rather than wait inside
// Postgres: a waiting statement would hold up a CREATE INDEX CONCURRENTLY of the one that has the lock.
func lock(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		var got bool
		if err := db.QueryRowContext(ctx, `select pg_try_advisory_lock($1)`, int64(lockKey)).Scan(&got); err != nil {
			return fmt.Errorf("take the lock: %w", err)
		}
		if got {
			return nil
		}
		if !waiting {
			log.Info("another program migrates this database, waiting for it")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another program that migrates this database: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// makeRoles runs roles.sql. Roles belong to the whole server, the lock to one database: where the roles are changed through
// another database at the same time, Postgres refuses one of the two, which tries again.
func makeRoles(ctx context.Context, db *sql.DB) error {
	script, err := files.ReadFile("roles.sql")
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		_, err = db.ExecContext(ctx, string(script))
		var pgErr *pgconn.PgError
		if try == 10 || !errors.As(err, &pgErr) || pgErr.Code != "XX000" {
			return err
		}
	}
}

func up(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	source, err := iofs.New(files, ".")
	if err != nil {
		return err
	}
	target, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	if err != nil {
		return err
	}
	defer target.Close() // it keeps the only session of db
	// For Check.
	if err := target.Run(strings.NewReader(`grant select on schema_migrations to public`)); err != nil {
		return fmt.Errorf("grant the schema version: %w", err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "postgres", target)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stop()

	before, dirty, err := m.Version()
	switch {
	case errors.Is(err, migrate.ErrNilVersion):
	case err != nil:
		return fmt.Errorf("read schema version: %w", err)
	case dirty:
		return dirtyError(before)
	case before > Latest():
		return fmt.Errorf("%w: it has version %d, this program knows up to %d; run the release that made it, "+
			"or take the schema down with that release's .down.sql files first", ErrNewer, before, Latest())
	}
	switch err := m.Up(); {
	case errors.Is(err, migrate.ErrNoChange):
		log.Info("schema is up to date", "version", before)
		return nil
	case err != nil:
		return fmt.Errorf("migrate from version %d: %w", before, err)
	case ctx.Err() != nil:
		return fmt.Errorf("migrate from version %d: stopped after a whole migration: %w", before, ctx.Err())
	}
	log.Info("schema is brought up to date", "from", before, "version", Latest())
	return nil
}

func dirtyError(version uint) error {
	back := fmt.Sprintf("update schema_migrations set version = %d, dirty = false", version-1)
	if version == 1 {
		back = "delete from schema_migrations"
	}
	return fmt.Errorf("%w: version %d. Each migration is one transaction, so it was done as a whole or not at all: look with psql whether what "+
		"migrations/%04d_*.up.sql makes is there. If it is: `update schema_migrations set dirty = false`. If not: `%s`. Then run the migrations again",
		ErrDirty, version, version, back)
}
