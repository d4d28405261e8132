package localserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// PostgresConfig says how a Postgres runs.
type PostgresConfig struct {
	// Dir keeps its cluster, which is made where Dir is missing or empty (superuser postgres, UTF8, C.UTF-8). Required.
	Dir string
	// Port is where it listens on 127.0.0.1; 0 takes a free one.
	Port int
	// Password is the superuser's, given to a new cluster, which then asks every role for its own. Default: it asks nobody.
	Password string
	// NoSync turns fsync off: faster, and the data do not survive a crash of the machine.
	NoSync bool
	// Settings are more settings, as "max_connections=300".
	Settings []string
	// Output gets what it logs. Default: only the last lines are kept, for errors.
	Output io.Writer
}

// Postgres is a running postgres.
type Postgres struct {
	cfg PostgresConfig

	mu   sync.Mutex
	proc *Process
}

// StartPostgres starts a postgres and returns once it takes connections. As root it returns an ErrUnreachable where
// the user that it gives to postgres may not enter Dir.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	p := &Postgres{cfg: cfg}
	if err := p.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	err := onPort(cfg.Port, func(port int) error {
		p.cfg.Port = port
		return p.start(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

func (p *Postgres) prepare(ctx context.Context) error {
	initdb, _, err := postgresPrograms()
	if err != nil {
		return err
	}
	if p.cfg.Dir, err = filepath.Abs(p.cfg.Dir); err != nil {
		return err
	}
	if err := PostgresReaches(p.cfg.Dir); err != nil {
		return err
	}
	return makeCluster(ctx, initdb, p.cfg.Dir, p.cfg.Password, p.cfg.NoSync, postgresUser())
}

func (p *Postgres) start(ctx context.Context) error {
	_, program, err := postgresPrograms()
	if err != nil {
		return err
	}
	settings := []string{"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.cfg.Port), "unix_socket_directories=",
		"logging_collector=off", "log_destination=stderr", "timezone=UTC", "log_timezone=UTC"}
	if p.cfg.NoSync {
		// Not synchronous_commit: what was committed must survive a Kill.
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	args := []string{"-D", p.cfg.Dir}
	for _, s := range append(settings, p.cfg.Settings...) {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = p.cfg.Dir
	cmd.Env = postgresEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: postgresUser()}
	// SIGQUIT, since after a SIGKILL its children would hold its shared memory for a while.
	proc, err := StartProcess(cmd, p.cfg.Output, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	ready := func() (bool, error) { return statusReady(p.cfg.Dir, proc.Pid()), nil }
	if err := waitReady(ctx, proc, ready, "Address already in use"); err != nil {
		killTree(proc)
		return err
	}
	p.proc = proc
	return nil
}

// statusReady reads what the postgres with that pid says of itself in its pid file: pid in the first line, state in the eighth.
func statusReady(dir string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// URL returns the URL of its database postgres as the superuser.
func (p *Postgres) URL() string { return p.DatabaseURL("postgres", "postgres", p.cfg.Password) }

// DatabaseURL returns the URL of a database as a role. An empty password is left out.
func (p *Postgres) DatabaseURL(database, role, password string) string {
	return serverURL("postgres", role, password, p.cfg.Port, "/"+database) + "?sslmode=disable"
}

// Password returns the superuser's.
func (p *Postgres) Password() string { return p.cfg.Password }

// Port returns the port.
func (p *Postgres) Port() int { return p.cfg.Port }

// Pid returns the process id of the running, or else of the last, postgres.
func (p *Postgres) Pid() int { return p.current().Pid() }

// Exited returns a channel that is closed when the postgres of now has ended.
func (p *Postgres) Exited() <-chan struct{} { return p.current().done }

func (p *Postgres) current() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}

// Kill ends it and all its children with SIGKILL, as a crash of the machine would. Killing it twice is no error.
func (p *Postgres) Kill() error { return killTree(p.current()) }

// killTree stops the parent first, so that no child is born meanwhile.
func killTree(p *Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	signalChildren(p, syscall.SIGKILL)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func signalChildren(p *Process, sig syscall.Signal) {
	if !p.Running() {
		return
	}
	for _, child := range childrenOf(p.Pid()) {
		syscall.Kill(child, sig)
	}
}

// Pause freezes it and its children (SIGSTOP): connections stay open and nothing is answered.
func (p *Postgres) Pause() error {
	proc := p.current()
	if err := proc.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	signalChildren(proc, syscall.SIGSTOP)
	return nil
}

// Resume lets it go on after Pause.
func (p *Postgres) Resume() error {
	proc := p.current()
	signalChildren(proc, syscall.SIGCONT)
	return proc.Signal(syscall.SIGCONT)
}

// Stop ends it in order, rolling back what runs; after ten seconds it is killed. Stopping it twice is no error.
func (p *Postgres) Stop() error {
	proc := p.current()
	if err := proc.Signal(syscall.SIGINT); err != nil {
		return err
	}
	if err := p.Resume(); err != nil {
		return err
	}
	if proc.Wait(10 * time.Second) {
		return nil
	}
	return p.Kill()
}

// Restart starts it again on the same port with the same data, after a Stop where it still runs.
func (p *Postgres) Restart() error {
	if err := p.Stop(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := restart(p.start); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	return nil
}
