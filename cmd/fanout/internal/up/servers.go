package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/smtpsink"
	"example.com/orderfanout/migrations"
)

const database = "orderfanout"

// servers is what the services need.
type servers struct {
	redis    *localserver.Redis
	postgres *localserver.Postgres
	sink     *smtpsink.Sink
	mailDir  string
	logs     []io.Closer
}

// startServers starts Redis and Postgres, brings the schema up to date and opens the mailbox.
func startServers(ctx context.Context, cfg Config, st *state, c *console) (*servers, error) {
	s := &servers{mailDir: st.path("mail")}
	c.say("starting Redis and Postgres")
	var redisErr, postgresErr error
	var wg sync.WaitGroup
	redisLog, err := s.openLog(st, "redis")
	if err != nil {
		return nil, err
	}
	postgresLog, err := s.openLog(st, "postgres")
	if err != nil {
		return nil, errors.Join(err, s.stop(c))
	}
	wg.Go(func() { s.redis, redisErr = startRedis(ctx, cfg, st, redisLog) })
	wg.Go(func() { s.postgres, postgresErr = startPostgres(ctx, cfg, st, postgresLog) })
	wg.Wait()
	err = errors.Join(redisErr, postgresErr)
	if err == nil {
		err = migrate(ctx, s.postgres)
	}
	if err == nil {
		s.sink, err = smtpsink.Start(smtpsink.Config{Dir: s.mailDir, Kept: func(to []string, file string) {
			c.note("mail to %s: %s", strings.Join(to, ", "), relative(cfg.Root, file))
		}})
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(c))
	}
	return s, nil
}

func (s *servers) openLog(st *state, name string) (io.Writer, error) {
	f, err := st.logFile(name)
	if err != nil {
		return nil, err
	}
	s.logs = append(s.logs, f)
	return f, nil
}

// startRedis starts Redis with the settings and the users that compose gives it.
func startRedis(ctx context.Context, cfg Config, st *state, log io.Writer) (*localserver.Redis, error) {
	rc := localserver.RedisConfig{
		Dir: st.path("redis"), Port: cfg.Redis, Output: log,
		ConfigFile: st.path("redis.conf"),
		ACLFile:    st.path("users.acl"), // a copy, since Redis may write to it
	}
	settings, err := os.ReadFile(filepath.Join(cfg.Root, "deploy", "redis.conf"))
	if err != nil {
		return nil, err
	}
	users, err := os.ReadFile(filepath.Join(cfg.Root, "deploy", "users.acl"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(rc.ConfigFile, withoutPaths(settings), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(rc.ACLFile, users, 0o600); err != nil {
		return nil, err
	}
	return localserver.StartRedis(ctx, rc)
}

// withoutPaths leaves out the settings that name places in the container.
func withoutPaths(settings []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(settings) {
		if !bytes.HasPrefix(line, []byte("dir ")) && !bytes.HasPrefix(line, []byte("aclfile ")) {
			kept = append(kept, line...)
		}
	}
	return kept
}

func startPostgres(ctx context.Context, cfg Config, st *state, log io.Writer) (*localserver.Postgres, error) {
	password, err := st.password()
	if err != nil {
		return nil, err
	}
	dir, err := st.postgresDir()
	if err != nil {
		return nil, err
	}
	return localserver.StartPostgres(ctx, localserver.PostgresConfig{Dir: dir, Port: cfg.Postgres, Password: password, Output: log})
}

func migrate(ctx context.Context, p *localserver.Postgres) error {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `create database `+database)
	var pgErr *pgconn.PgError
	if err != nil && (!errors.As(err, &pgErr) || pgErr.Code != "42P04") { // it is there already
		return fmt.Errorf("create database %s: %w", database, err)
	}
	return migrations.Apply(ctx, p.DatabaseURL(database, "postgres", p.Password()), slog.New(slog.DiscardHandler))
}

// environment returns what tells a service where the servers are. Each has a user of its own; those passwords are in the
// checkout (deploy/users.acl, migrations/roles.sql) and open nothing but this system.
func (s *servers) environment(name string) []string {
	return []string{
		"DATABASE_URL=" + s.postgres.DatabaseURL(database, name, name),
		fmt.Sprintf("REDIS_URL=redis://%s:%s@%s/0", name, name, s.redis.Addr()),
		"SMTP_URL=" + s.sink.URL(),
	}
}

// writeEnv keeps what the operator's tool needs in a file for the shell.
func (s *servers) writeEnv(path string) error {
	var b strings.Builder
	for _, setting := range s.environment("fanout")[:2] {
		name, value, _ := strings.Cut(setting, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, value)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// keep starts Redis and Postgres again when they end, until ctx is done.
func (s *servers) keep(ctx context.Context, restartAfter time.Duration, c *console) {
	keepServer := func(name string, exited func() <-chan struct{}, restart func() error, pid func() int) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-exited():
			}
			c.note("%s ended, starting it again in %s", name, restartAfter)
			select {
			case <-ctx.Done():
				return
			case <-time.After(restartAfter):
			}
			if err := restart(); err != nil {
				c.note("%v", err)
				continue
			}
			c.note("%s runs again, pid %d", name, pid())
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { keepServer("redis", s.redis.Exited, s.redis.Restart, s.redis.Pid) })
	wg.Go(func() { keepServer("postgres", s.postgres.Exited, s.postgres.Restart, s.postgres.Pid) })
	wg.Wait()
}

// stop ends what was started: the mailbox, then Redis, then Postgres.
func (s *servers) stop(c *console) error {
	var errs []error
	if s.sink != nil {
		errs = append(errs, s.sink.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Stop())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	for _, l := range s.logs {
		errs = append(errs, l.Close())
	}
	err := errors.Join(errs...)
	if err == nil && s.postgres != nil {
		c.say("stopped; the data are kept in .fanout")
	}
	return err
}

func relative(root, file string) string {
	if rel, err := filepath.Rel(root, file); err == nil {
		return rel
	}
	return file
}
