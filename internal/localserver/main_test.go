package localserver_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/internal/localserver"
	"example.com/orderfanout/internal/localserver/servertest"
)

// ownerDir makes the test program a program that owns servers in that directory, for TestServersEndWithTheirOwner.
const ownerDir = "LOCALSERVER_TEST_OWNER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		ownServers(dir)
	}
	servertest.Main(m)
}

// ownServers starts servers, prints their process ids and waits to be killed.
func ownServers(dir string) {
	ctx, stop := within(time.Minute)
	defer stop()
	r, err := localserver.StartRedis(ctx, localserver.RedisConfig{Dir: dir + "/redis"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := localserver.StartPostgres(ctx, localserver.PostgresConfig{Dir: dir + "/postgres", NoSync: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	endThreads()
	fmt.Println(r.Pid(), p.Pid())
	<-ctx.Done()
	os.Exit(1)
}

// endThreads makes threads end: had one of them started a server, that would get its death signal now.
func endThreads() {
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		})
	}
	wg.Wait()
}
