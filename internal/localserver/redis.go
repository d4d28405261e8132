package localserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisConfig says how a Redis runs.
type RedisConfig struct {
	// Dir keeps its data. Required; made where it is missing.
	Dir string
	// Port is where it listens on 127.0.0.1; 0 takes a free one.
	Port int
	// ConfigFile is a redis.conf that is read before the settings of this package, which win. Default: none.
	ConfigFile string
	// ACLFile holds its users. Default: no users, no password.
	ACLFile string
	// Username and Password go into URL and Options. Default: none.
	Username, Password string
	// Args come last on the command line, such as "--maxmemory", "10mb".
	Args []string
	// Output gets what it logs. Default: only the last lines are kept, for errors.
	Output io.Writer
}

// Redis is a running redis-server with an append-only file (fsync every second) and no eviction.
type Redis struct {
	cfg RedisConfig

	mu   sync.Mutex
	proc *Process
}

// startLimit bounds the start of a server, which on a busy machine has much to load.
const startLimit = 2 * time.Minute

// StartRedis starts a redis-server and returns once it takes commands.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	cfg.Dir = dir
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	r := &Redis{cfg: cfg}
	err = onPort(cfg.Port, func(port int) error {
		r.cfg.Port = port
		return r.start(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	return r, nil
}

func (r *Redis) start(ctx context.Context) error {
	program, err := redisProgram()
	if err != nil {
		return err
	}
	var args []string
	if r.cfg.ConfigFile != "" {
		args = append(args, r.cfg.ConfigFile)
	}
	args = append(args, "--port", strconv.Itoa(r.cfg.Port), "--bind", "127.0.0.1", "--dir", r.cfg.Dir,
		"--daemonize", "no", "--logfile", "", "--loglevel", "notice", "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction")
	if r.cfg.ACLFile != "" {
		args = append(args, "--aclfile", r.cfg.ACLFile)
	}
	cmd := exec.Command(program, append(args, r.cfg.Args...)...)
	cmd.Dir = r.cfg.Dir
	// What it has written is with the kernel, so a kill loses nothing.
	proc, err := StartProcess(cmd, r.cfg.Output, syscall.SIGKILL)
	if err != nil {
		return err
	}
	// Its own log is asked, not the port: there another program could answer.
	ready := func() (bool, error) { return proc.out.contains("Ready to accept connections"), nil }
	if err := waitReady(ctx, proc, ready, "Address already in use"); err != nil {
		proc.Signal(syscall.SIGKILL)
		<-proc.done
		return err
	}
	r.proc = proc
	return nil
}

// Addr returns host and port.
func (r *Redis) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.cfg.Port) }

// Port returns the port.
func (r *Redis) Port() int { return r.cfg.Port }

// URL returns a redis:// URL.
func (r *Redis) URL() string {
	return serverURL("redis", r.cfg.Username, r.cfg.Password, r.cfg.Port, "")
}

// Options returns new options for a client.
func (r *Redis) Options() *redis.Options {
	return &redis.Options{Addr: r.Addr(), Username: r.cfg.Username, Password: r.cfg.Password}
}

// Pid returns the process id of the running, or else of the last, redis-server.
func (r *Redis) Pid() int { return r.current().Pid() }

// Exited returns a channel that is closed when the redis-server of now has ended.
func (r *Redis) Exited() <-chan struct{} { return r.current().done }

func (r *Redis) current() *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

// Kill ends it with SIGKILL and waits until it is gone. Killing it twice is no error.
func (r *Redis) Kill() error {
	p := r.current()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Pause freezes it (SIGSTOP): its connections stay open and nothing is answered.
func (r *Redis) Pause() error { return r.current().Signal(syscall.SIGSTOP) }

// Resume lets it go on after Pause.
func (r *Redis) Resume() error { return r.current().Signal(syscall.SIGCONT) }

// Stop ends it in order, also when it is frozen; after ten seconds it is killed. Stopping it twice is no error.
func (r *Redis) Stop() error {
	p := r.current()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if p.Wait(10 * time.Second) {
		return nil
	}
	return r.Kill()
}

// Restart starts it again on the same port with the same data, after a Stop where it still runs.
func (r *Redis) Restart() error {
	if err := r.Stop(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := restart(r.start); err != nil {
		return fmt.Errorf("restart redis-server: %w", err)
	}
	return nil
}
