package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Config says how the system runs. The zero value of a port is no default: DefaultConfig has them.
type Config struct {
	// Root is the checkout; the data are kept in its .fanout.
	Root string
	// Orders, Mailer, Bonus and Analytics are the services' ports (8080 to 8083).
	Orders, Mailer, Bonus, Analytics int
	// Redis and Postgres are the servers' ports (6390 and 5440: their usual ones may be taken by others).
	Redis, Postgres int
	// Env has settings ("HANDLER_DELAY=5s") that one service alone is given, by its name. Default: none.
	Env map[string][]string
	// FirstEnv has those that only the service's first life is given (CRASH_AT: its next one does the work). Default: none.
	FirstEnv map[string][]string
	// RestartAfter is how long a service that ended stays away (3 s).
	RestartAfter time.Duration
	// Grace is how long a service may take to drain; it must be longer than HANDLER_TIMEOUT (40 s).
	Grace time.Duration
	// ReadyWithin is how long the table waits for the services to be ready (30 s).
	ReadyWithin time.Duration
	// Colour is whether the names before the log lines are coloured.
	Colour bool
}

// DefaultConfig returns the Config with the defaults that its fields name.
func DefaultConfig() Config {
	return Config{
		Orders: 8080, Mailer: 8081, Bonus: 8082, Analytics: 8083,
		Redis: 6390, Postgres: 5440,
		RestartAfter: 3 * time.Second,
		Grace:        40 * time.Second,
		ReadyWithin:  30 * time.Second,
	}
}

// FindRoot returns the checkout that dir lies in.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		_, err := os.Stat(filepath.Join(at, "services", "orders", "go.mod"))
		if err == nil {
			return at, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of orderfanout, which this command builds the services from", dir)
		}
	}
}
