package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed *.sql
var files embed.FS

var (
	// ErrBehind says that the schema is missing or older than this program.
	ErrBehind = errors.New("schema is not up to date: run the migrations (docker compose run --rm migrate)")
	// ErrDirty says that a migration was interrupted. A person has to look; nothing repairs it by itself.
	ErrDirty = errors.New("schema is marked dirty: a migration was interrupted")
	// ErrNewer says that the schema is of a later release than this program.
	ErrNewer = errors.New("schema is newer than this program")
)

// Latest returns the version that this program knows as the last.
func Latest() uint {
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil || len(names) == 0 {
		panic("migrations: no files are embedded")
	}
	var version uint
	if _, err := fmt.Sscanf(names[len(names)-1], "%d_", &version); err != nil {
		panic("migrations: " + names[len(names)-1] + " has no number")
	}
	return version
}

// Check returns nil where the schema is at the version that this program knows, or later, and whole. Otherwise it
// returns ErrBehind or ErrDirty, or what Postgres said. Every role may call it.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	var version int64
	var dirty bool
	err := pool.QueryRow(ctx, `select version, dirty from schema_migrations`).Scan(&version, &dirty)
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &pgErr) && pgErr.Code == "42P01":
		return ErrBehind
	case err != nil:
		return fmt.Errorf("read schema version: %w", err)
	case dirty:
		return fmt.Errorf("version %d: %w", version, ErrDirty)
	case version < int64(Latest()):
		return fmt.Errorf("version %d of %d: %w", version, Latest(), ErrBehind)
	}
	return nil
}
