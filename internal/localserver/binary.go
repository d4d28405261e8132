package localserver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotInstalled says that a server's program is nowhere to be found.
var ErrNotInstalled = errors.New("not installed")

// programs returns the paths of the named programs, which must lie in one directory: the first of PATH, or of dirs (patterns as of
// filepath.Glob; the highest version first), that has them all.
func programs(dirs []string, names ...string) ([]string, error) {
	candidates := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range dirs {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		candidates = append(candidates, found...)
	}
next:
	for _, dir := range candidates {
		paths := make([]string, len(names))
		for i, name := range names {
			paths[i] = filepath.Join(dir, name)
			if st, err := os.Stat(paths[i]); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
				continue next
			}
		}
		return paths, nil
	}
	return nil, fmt.Errorf("%s: %w; deploy/install-servers installs Redis and PostgreSQL (make up and make test run it), "+
		"or install redis-server and postgresql (brew: redis and postgresql) by hand", strings.Join(names, ", "), ErrNotInstalled)
}

// version returns the first number in the path, such as 15 in /usr/lib/postgresql/15/bin.
func version(path string) int {
	start := strings.IndexAny(path, "0123456789")
	if start < 0 {
		return 0
	}
	end := start
	for end < len(path) && path[end] >= '0' && path[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(path[start:end])
	return n
}

func redisProgram() (string, error) {
	paths, err := programs([]string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"}, "redis-server")
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

func postgresPrograms() (initdb, postgres string, err error) {
	paths, err := programs([]string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
	}, "initdb", "postgres")
	if err != nil {
		return "", "", err
	}
	return paths[0], paths[1], nil
}

// PostgresBin returns the directory with PostgreSQL's programs, or an ErrNotInstalled.
func PostgresBin() (string, error) {
	_, postgres, err := postgresPrograms()
	return filepath.Dir(postgres), err
}

// Installed returns nil where redis-server and PostgreSQL are there, and what is missing (ErrNotInstalled) otherwise.
func Installed() error {
	_, redisErr := redisProgram()
	_, _, postgresErr := postgresPrograms()
	return errors.Join(redisErr, postgresErr)
}
