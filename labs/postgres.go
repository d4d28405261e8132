package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver"
)

// takePostgres starts a Postgres, or connects to the one that was named, and makes the schema lab there; stop removes what it
// has made.
func (s *session) takePostgres(ctx context.Context) (stop func() error, err error) {
	remove := func() {}
	if s.postgresURL == "" {
		if remove, err = s.startPostgres(ctx); err != nil {
			return nil, err
		}
	}
	s.pg, err = pgx.Connect(ctx, s.postgresURL)
	if err == nil {
		if err = s.takeSchema(ctx); err != nil {
			s.pg.Close(ctx)
		}
	}
	if err != nil {
		remove()
		return nil, fmt.Errorf("prepare Postgres: %w", err)
	}
	return func() error {
		// Also after Ctrl-C, which has closed the connection: so with a new one, and a context of its own.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		defer remove()
		s.pg.Close(ctx)
		conn, err := pgx.Connect(ctx, s.postgresURL)
		if err == nil {
			_, err = conn.Exec(ctx, "drop schema lab cascade")
			conn.Close(ctx)
		}
		if err != nil {
			return fmt.Errorf("drop the schema lab: %w", err)
		}
		return nil
	}, nil
}

func (s *session) startPostgres(ctx context.Context) (remove func(), err error) {
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	server, err := localserver.StartPostgres(ctx, localserver.PostgresConfig{Dir: dir + "/data", NoSync: true})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.postgresURL = server.URL()
	return func() {
		server.Stop()
		os.RemoveAll(dir)
	}, nil
}

// takeSchema makes the schema lab. One that no lab has made is left alone.
func (s *session) takeSchema(ctx context.Context) error {
	var comment string
	err := s.pg.QueryRow(ctx, "select coalesce(obj_description(oid, 'pg_namespace'), '') from pg_namespace where nspname = 'lab'").Scan(&comment)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	case comment != owner:
		return errors.New("this database has a schema lab that no lab has made: rename it, or name another database")
	}
	_, err = s.pg.Exec(ctx, "drop schema if exists lab cascade; create schema lab; comment on schema lab is '"+owner+"'")
	return err
}

// sql sends a statement and prints it, with the server's answer as psql prints it.
func (s *session) sql(ctx context.Context, statement string) {
	s.say("   postgres> %s", s.bold(statement+";"))
	s.say("   %s", must(s.pg.Exec(ctx, statement)))
}

// sqlCount sends a query for one number and prints both.
func (s *session) sqlCount(ctx context.Context, query string) int {
	s.say("   postgres> %s", s.bold(query+";"))
	var n int
	check(s.pg.QueryRow(ctx, query).Scan(&n))
	s.say("   %d", n)
	return n
}
