package localserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// ErrUnreachable says that the user that postgres runs as may not enter a directory above its data.
var ErrUnreachable = errors.New("directory cannot be entered by the user that postgres runs as")

// postgresUser returns whom postgres runs as: nil, which is the user of now, or, since it refuses root, the
// user postgres or nobody.
func postgresUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// PostgresReaches returns nil where postgres, as the user that it runs as, may enter all directories above dir that
// are there, and an ErrUnreachable that names the first that it may not enter otherwise.
func PostgresReaches(dir string) error {
	cred := postgresUser()
	if cred == nil {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		st, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it will be made so that it can be entered
		}
		if err != nil {
			return err
		}
		need := fs.FileMode(0o001)
		if owner, ok := st.Sys().(*syscall.Stat_t); ok && owner.Uid == cred.Uid {
			need = 0o100
		} else if ok && owner.Gid == cred.Gid {
			need = 0o010
		}
		if st.Mode()&need == 0 {
			return fmt.Errorf("%s: %w (uid %d)", dir, ErrUnreachable, cred.Uid)
		}
	}
	return nil
}

// makeCluster makes a Postgres cluster in dir, which is missing or empty; where one is there already it does nothing.
// The cluster is made beside dir and renamed, so that an interrupted start leaves no half of one.
func makeCluster(ctx context.Context, initdb, dir, password string, noSync bool, cred *syscall.Credential) error {
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return nil
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: is neither empty nor a Postgres cluster", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := makeDir(fresh, cred); err != nil {
		return err
	}
	locale := "C.UTF-8"
	if runtime.GOOS == "darwin" {
		locale = "C" // the same order; C.UTF-8 is not there
	}
	args := []string{"--pgdata", fresh, "--username", "postgres", "--encoding", "UTF8", "--locale", locale}
	if password == "" {
		args = append(args, "--auth", "trust")
	} else {
		file := fresh + "-password"
		defer os.Remove(file)
		if err := writeFile(file, password+"\n", cred); err != nil {
			return err
		}
		args = append(args, "--auth", "scram-sha-256", "--pwfile", file)
	}
	if noSync {
		args = append(args, "--no-sync")
	}
	cmd := exec.Command(initdb, args...)
	cmd.Dir = fresh
	cmd.Env = postgresEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	p, err := StartProcess(cmd, nil, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Signal(syscall.SIGKILL)
		<-p.done
		return ctx.Err()
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("initdb (%s); its last lines:\n%s", cmd.ProcessState, p.out)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, dir)
}

func makeDir(dir string, cred *syscall.Credential) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if cred == nil {
		return nil
	}
	return os.Chown(dir, int(cred.Uid), int(cred.Gid))
}

func writeFile(file, text string, cred *syscall.Credential) error {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if cred == nil {
		return nil
	}
	return os.Chown(file, int(cred.Uid), int(cred.Gid))
}

// postgresEnv is the environment without the variables that would set postgres up in another way.
func postgresEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C")
}
