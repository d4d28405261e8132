package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
)

// session is one run of a lab.
type session struct {
	in         io.Reader
	out        io.Writer
	progressTo io.Writer
	stepwise   bool
	redisURL   string
	seed       uint64
	// postgresURL is set where the lab needs a Postgres, or somebody has named one.
	postgresURL string

	redis  *redis.Client
	hand   *redis.Conn // one connection for all that is typed, as in a terminal
	pg     *pgx.Conn
	random *rand.Rand
	colour bool
	steps  int
	typed  <-chan bool // a value for each line of in; closed at its end
	told   time.Time   // when progress was last shown
	line   bool        // a progress line stands on the terminal
}

// prefix begins every key of every lab.
const prefix = "lab:"

// ownerKey says that what lies under prefix was made by a lab, and may be deleted.
const ownerKey, owner = prefix + "owner", "orderfanout labs"

// runLab gives the lab a Redis and takes it away again, also when the lab fails or is interrupted.
func (s *session) runLab(ctx context.Context, l lab) (err error) {
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	s.colour = isTerminal(s.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if s.redisURL == "" {
		stop, err := s.startRedis(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	opt, err := redis.ParseURL(s.redisURL)
	if err != nil {
		return fmt.Errorf("--redis: %w; %w", err, errUsage)
	}
	s.redis = newClient(opt)
	defer s.redis.Close()
	s.hand = s.redis.Conn()
	defer s.hand.Close()
	if err := s.takeKeys(ctx); err != nil {
		return err
	}
	defer func() {
		// Also after Ctrl-C, so with a context of its own.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, s.deleteKeys(ctx))
	}()
	if l.postgres {
		stop, failed := s.takePostgres(ctx)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	s.say("%s: %s", s.bold(l.name), l.about)
	return caught(func() { l.run(ctx, s) })
}

// startRedis starts a redis-server with its data in a directory of its own; stop ends it and removes them.
func (s *session) startRedis(ctx context.Context) (stop func(), err error) {
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	server, err := localserver.StartRedis(ctx, localserver.RedisConfig{Dir: dir})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.redisURL = server.URL()
	return func() {
		server.Kill()
		os.RemoveAll(dir)
	}, nil
}

// startBroker starts a second Redis, which the lab may kill. What it has written survives a kill of the process, since the kernel has it:
// for that appendfsync no is enough, and it is quick. Against a power failure it would have to be always.
func startBroker(ctx context.Context, persist bool) (broker *localserver.Redis, stop func()) {
	dir := must(makeDir())
	args := []string{"--appendonly", "no"}
	if persist {
		args = []string{"--appendonly", "yes", "--appendfsync", "no"}
	}
	broker, err := localserver.StartRedis(ctx, localserver.RedisConfig{Dir: dir, Args: args})
	stop = func() {
		if broker != nil {
			broker.Kill()
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		stop()
		check(err)
	}
	return broker, stop
}

// makeDir makes a directory for a server's data. As root, postgres runs as somebody else, who must get there.
func makeDir() (string, error) {
	parent := os.TempDir()
	if localserver.PostgresReaches(parent+"/x") != nil {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "orderfanout-lab-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// newClient returns a client that says everything once: a command that is repeated behind our back would be counted twice.
func newClient(opt *redis.Options) *redis.Client {
	opt.MaxRetries = -1
	opt.ReadTimeout = 30 * time.Second // a busy machine is no error
	opt.Protocol = 2                   // replies as redis-cli shows them
	opt.DisableIdentity = true
	opt.DialerRetries = 1
	return redis.NewClient(opt)
}

// takeKeys makes sure that what lies under prefix is a lab's, and deletes it.
func (s *session) takeKeys(ctx context.Context) error {
	keys, err := s.keys(ctx)
	if err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	if len(keys) > 0 {
		found, err := s.redis.Get(ctx, ownerKey).Result()
		if err != nil && !isNil(err) {
			return fmt.Errorf("read %s: %w", ownerKey, err)
		}
		if found != owner {
			return fmt.Errorf("this Redis has keys under %s that no lab has made, such as %s: delete them, or name another database (redis://host:6379/1)",
				prefix, keys[0])
		}
	}
	if err := s.deleteKeys(ctx); err != nil {
		return err
	}
	return s.redis.Set(ctx, ownerKey, owner, 0).Err()
}

func (s *session) keys(ctx context.Context) ([]string, error) {
	var keys []string
	it := s.redis.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	return keys, it.Err()
}

func (s *session) deleteKeys(ctx context.Context) error {
	keys, err := s.keys(ctx)
	if err == nil && len(keys) > 0 {
		err = s.redis.Unlink(ctx, keys...).Err()
	}
	if err != nil {
		return fmt.Errorf("delete the keys under %s: %w", prefix, err)
	}
	return nil
}

// clear removes what the last part of a lab left, so that the next one counts from nothing.
func (s *session) clear(ctx context.Context) {
	check(s.deleteKeys(ctx))
	check(s.redis.Set(ctx, ownerKey, owner, 0).Err())
}

// until waits until ready returns true. It asks again and again, and nothing depends on how often.
func (s *session) until(ctx context.Context, what string, ready func() bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !ready() {
		select {
		case <-ctx.Done():
			check(fmt.Errorf("wait until %s: %w", what, ctx.Err()))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// isNil tells whether the reply was "nothing there".
func isNil(err error) bool { return errors.Is(err, redis.Nil) }
