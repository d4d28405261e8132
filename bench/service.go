package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver"
)

// running is one of the project's services, as a process.
type running struct {
	name, url string
	child     *child
	process   *localserver.Process
	ready     time.Duration // from its start to its first 200 on /readyz
}

// service starts one of the project's services as it runs everywhere else, and waits until it is ready.
func (c *child) service(ctx context.Context, name string, env ...string) (*running, error) {
	port, err := localserver.FreePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.Command(filepath.Join(c.bin, name))
	cmd.Env = append([]string{"HTTP_ADDR=" + addr, "CONSUMER_NAME=one", "LOG_LEVEL=warn",
		"REDIS_URL=" + c.redisURL, "DATABASE_URL=" + c.as(name)}, env...)
	began := time.Now()
	p, err := localserver.StartProcess(cmd, c.output, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	r := &running{name: name, url: "http://" + addr, child: c, process: p}
	for ctx.Err() == nil && p.Running() {
		if res, err := http.Get(r.url + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				r.ready = time.Since(began)
				return r, nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s did not get ready", name), r.stop())
}

// stop ends the service in order, and keeps the most memory that it had.
func (r *running) stop() error {
	r.child.peak = max(r.child.peak, memory(r.process.Pid(), peakMemory))
	_ = r.process.Signal(syscall.SIGTERM)
	if !r.process.Wait(time.Minute) {
		_ = r.process.Signal(syscall.SIGKILL)
		return fmt.Errorf("%s does not end", r.name)
	}
	if code := r.process.State().ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %d", r.name, code)
	}
	return nil
}

// serviceConsume lets a service work off a backlog. The clock runs while it does the last nine tenths, so that its start does
// not count; CPU time is of all.
func serviceConsume(name string, env ...string) func(context.Context, *child) error {
	return func(ctx context.Context, c *child) error {
		client := redis.NewClient(c.options())
		defer client.Close()
		cpu := cpuTime()
		service, err := c.service(ctx, name, env...)
		if err != nil {
			return err
		}
		first, from := 0, time.Time{}
		for {
			done, err := doneIn(ctx, client, name)
			if err != nil {
				return errors.Join(err, service.stop())
			}
			now := time.Now()
			if first == 0 && done >= c.n/10 {
				first, from = done, now
			}
			if done == c.n {
				c.took = time.Duration(float64(now.Sub(from)) * float64(c.n) / float64(c.n-first))
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		err = service.stop()
		c.cpu = cpuTime() - cpu
		return err
	}
}

// doneIn is how many entries a group has read and acknowledged.
func doneIn(ctx context.Context, client *redis.Client, group string) (int, error) {
	groups, err := client.XInfoGroups(ctx, stream).Result()
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		if g.Name == group {
			return int(g.EntriesRead - g.Pending), nil
		}
	}
	return 0, nil
}
