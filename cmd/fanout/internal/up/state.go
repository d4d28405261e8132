package up

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.com/orderfanout/internal/localserver"
)

// ErrRunning says that another fanout up works on the same data.
var ErrRunning = errors.New("fanout up is running here already")

// state is the directory .fanout, held by one program at a time.
type state struct {
	dir  string
	lock *os.File
}

// outside is where root keeps Postgres's data when the user that postgres runs as may not enter the checkout.
const outside = "/var/lib/orderfanout"

// openState takes the directory, or returns an ErrRunning.
func openState(root string) (*state, error) {
	dir := filepath.Join(root, ".fanout")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// The file is never removed: two programs could then hold a lock each on two files of one name.
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		pid, _ := io.ReadAll(f)
		return nil, fmt.Errorf("%w (pid %s): stop it first, or use it", ErrRunning, strings.TrimSpace(string(pid)))
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		f.Close()
		return nil, err
	}
	return &state{dir: dir, lock: f}, nil
}

func (s *state) close() { s.lock.Close() }

func (s *state) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// password returns the superuser's password, made with the first start: without one, every user of the machine could
// become the user that postgres runs as.
func (s *state) password() (string, error) {
	file := s.path("postgres.password")
	b, err := os.ReadFile(file)
	if err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	password := rand.Text()
	return password, os.WriteFile(file, []byte(password+"\n"), 0o600)
}

// postgresDir returns the directory of Postgres's data: .fanout/postgres, or, where the user that postgres runs as cannot get
// there, what .fanout/postgres is then a link to.
func (s *state) postgresDir() (string, error) {
	dir := s.path("postgres")
	if target, err := os.Readlink(dir); err == nil {
		return target, nil
	}
	err := localserver.PostgresReaches(dir)
	if !errors.Is(err, localserver.ErrUnreachable) {
		return dir, err
	}
	if err := os.MkdirAll(outside, 0o755); err != nil {
		return "", err
	}
	target, err := os.MkdirTemp(outside, "postgres-")
	if err != nil {
		return "", err
	}
	return target, os.Symlink(target, dir)
}

// logFile opens the log of a server for more lines.
func (s *state) logFile(name string) (*os.File, error) {
	return os.OpenFile(s.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// Remove deletes all that Run has kept under root, and tells whether there was anything. It returns an ErrRunning
// while a Run works on it.
func Remove(root string) (bool, error) {
	if _, err := os.Stat(filepath.Join(root, ".fanout")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	s, err := openState(root)
	if err != nil {
		return false, err
	}
	defer s.close()
	if target, err := os.Readlink(s.path("postgres")); err == nil {
		if err := os.RemoveAll(target); err != nil {
			return false, err
		}
	}
	return true, os.RemoveAll(s.dir)
}
