package localserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func TestRedisKeepsPortAndDataOverAKill(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := newClient(t, server)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	port, pid := server.Port(), server.Pid()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Fatal("it answers after Kill")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if server.Port() != port || server.Pid() == pid {
		t.Errorf("port %d → %d, pid %d → %d", port, server.Port(), pid, server.Pid())
	}
	if got, err := client.Get(t.Context(), "k").Result(); got != "v" {
		t.Errorf("k = %q, %v after a restart", got, err)
	}
}

func TestRedisPause(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := newClient(t, server)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("it answers while it is frozen")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-server.Exited():
	default:
		t.Error("it runs after Stop")
	}
}

func newClient(t *testing.T, server *localserver.Redis) *redis.Client {
	t.Helper()
	opts := server.Options()
	opts.MaxRetries, opts.ReadTimeout, opts.DialTimeout = -1, 500*time.Millisecond, time.Second
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

func TestFixedPortThatIsTaken(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	_, err := localserver.StartRedis(t.Context(), localserver.RedisConfig{Dir: t.TempDir(), Port: server.Port()})
	if !errors.Is(err, localserver.ErrPortTaken) || !strings.Contains(err.Error(), strconv.Itoa(server.Port())) {
		t.Errorf("err = %v, want ErrPortTaken with the port", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ports := map[int]bool{}
	for range 6 {
		wg.Go(func() {
			port := servertest.Redis(t).Port()
			mu.Lock()
			defer mu.Unlock()
			ports[port] = true
		})
	}
	wg.Wait()
	if len(ports) != 6 {
		t.Errorf("6 servers on ports %v", ports)
	}
}

func TestBadArgumentIsReported(t *testing.T) {
	t.Parallel()
	_, err := localserver.StartRedis(t.Context(), localserver.RedisConfig{Dir: t.TempDir(), Args: []string{"--no-such-thing", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("err = %v, want what redis-server said", err)
	}
}

func TestPostgresKeepsPortAndDataOverAKill(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	exec1(t, server, `create table t (v text)`)
	exec1(t, server, `insert into t values ('x')`)
	busy := connect(t, server)
	gone := make(chan error, 1)
	go func() {
		_, err := busy.Exec(context.Background(), `select pg_sleep(600)`)
		gone <- err
	}()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if err == nil {
			t.Error("a statement outlived the kill")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a statement still runs after the kill")
	}
	port := server.Port()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if server.Port() != port {
		t.Errorf("port %d → %d", port, server.Port())
	}
	exec1(t, server, `insert into t select v from t`)
	if err := server.Restart(); err != nil { // of one that runs
		t.Fatal(err)
	}
	var n int
	if err := connect(t, server).QueryRow(t.Context(), `select count(*) from t`).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows, %v; want 2", n, err)
	}
}

func TestPostgresPause(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	conn := connect(t, server)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, `select 1`); err == nil {
		t.Error("it answers while it is frozen")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	exec1(t, server, `select 1`)
}

func TestPostgresPassword(t *testing.T) {
	t.Parallel()
	dir := servertest.TempDir(t)
	cfg := localserver.PostgresConfig{Dir: dir + "/data", Password: "s3cret", NoSync: true}
	server, err := localserver.StartPostgres(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	exec1(t, server, `select 1`)
	for _, password := range []string{"", "wrong"} {
		if c, err := pgx.Connect(t.Context(), server.DatabaseURL("postgres", "postgres", password)); err == nil {
			c.Close(t.Context())
			t.Errorf("password %q lets in", password)
		}
	}
	if left, _ := filepath.Glob(dir + "/*password*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestPostgresInADirectoryOfSomethingElse(t *testing.T) {
	t.Parallel()
	dir := servertest.TempDir(t)
	if err := os.WriteFile(dir+"/letter", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localserver.StartPostgres(t.Context(), localserver.PostgresConfig{Dir: dir}); err == nil {
		t.Error("it starts in a directory with other files")
	}
	if _, err := os.Stat(dir + "/letter"); err != nil {
		t.Error(err)
	}
}

func TestPostgresThatCannotReachItsData(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives postgres another user")
	}
	dir := servertest.TempDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := localserver.StartPostgres(t.Context(), localserver.PostgresConfig{Dir: dir + "/data"})
	if !errors.Is(err, localserver.ErrUnreachable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("err = %v, want ErrUnreachable with %s", err, dir)
	}
}

func exec1(t *testing.T, server *localserver.Postgres, statement string) {
	t.Helper()
	if _, err := connect(t, server).Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, server *localserver.Postgres) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

func TestServersHaveAProcessGroupOfTheirOwn(t *testing.T) {
	t.Parallel()
	pid := servertest.Redis(t).Pid()
	group, err := syscall.Getpgid(pid)
	if err != nil || group != pid {
		t.Errorf("group of %d is %d, %v", pid, group, err)
	}
}

func TestServersEndWithTheirOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a death signal")
	}
	dir := servertest.TempDir(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerDir+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer owner.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var redisPid, postgresPid int
	if _, err := fmt.Sscan(line, &redisPid, &postgresPid); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for _, pid := range []int{redisPid, postgresPid} {
		if !alive(pid) {
			t.Fatalf("%d ended before its owner", pid)
		}
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	for _, pid := range []int{redisPid, postgresPid} {
		for deadline := time.Now().Add(20 * time.Second); alive(pid); {
			if time.Now().After(deadline) {
				t.Errorf("%d outlived its owner", pid)
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// alive tells whether the process runs; one that only nobody has waited for yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestRedisListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		addr := net.JoinHostPort(ip.IP.String(), strconv.Itoa(server.Port()))
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			c.Close()
			t.Errorf("it listens on %s", addr)
		}
	}
}
