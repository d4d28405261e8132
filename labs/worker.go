package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// workerCommand is the hidden first argument that makes this program a worker:
//
//	labs worker LAB/ROLE NAME [key=value…]
//
// The addresses of Redis and Postgres stand in the environment.
const workerCommand, redisVariable, postgresVariable = "worker", "LABS_REDIS", "LABS_POSTGRES"

// What a worker tells the lab on its standard output, a line each: that it is connected, and the first commands that it sends.
const readyLine, commandLine = "ready", "command "

// worker is what a role is given.
type worker struct {
	name  string
	redis *redis.Client
	args  map[string]string
	term  *atomic.Bool // shared by all consumers of a process
}

// workerMain runs a role until the lab ends it.
func workerMain(args []string) int {
	err := caught(func() {
		if len(args) < 2 {
			check(fmt.Errorf("usage: %s LAB/ROLE NAME [key=value…]", workerCommand))
		}
		w := &worker{name: args[1], args: map[string]string{}, term: new(atomic.Bool)}
		for _, arg := range args[2:] {
			key, value, _ := strings.Cut(arg, "=")
			w.args[key] = value
		}
		role := findRole(args[0])
		opt := must(redis.ParseURL(os.Getenv(redisVariable)))
		opt.ClientName = prefix + w.name
		w.redis = newClient(opt)
		ctx := context.Background()
		check(w.redis.Ping(ctx).Err())
		if w.has("drain") {
			w.finishOnTerm()
		}
		fmt.Println(readyLine)
		w.redis.AddHook(&trace{left: w.number("trace", 0)})
		role(ctx, w)
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "labs worker %s: %v\n", strings.Join(args, " "), err)
		return exitFailed
	}
	return 0
}

func findRole(name string) func(context.Context, *worker) {
	labName, roleName, _ := strings.Cut(name, "/")
	for _, l := range labs() {
		if role, ok := l.roles[roleName]; ok && l.name == labName {
			return role
		}
	}
	check(fmt.Errorf("there is no role %q", name))
	return nil
}

// has tells whether the lab gave this worker the setting.
func (w *worker) has(key string) bool { _, ok := w.args[key]; return ok }

// number returns a setting that is a number.
func (w *worker) number(key string, otherwise int) int {
	if !w.has(key) {
		return otherwise
	}
	return must(strconv.Atoi(w.args[key]))
}

// finishOnTerm lets a worker finish its job at SIGTERM. Without it, SIGTERM ends the worker at once, like most programs.
func (w *worker) finishOnTerm() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		w.term.Store(true)
	}()
}

// stopping tells whether the worker was asked to end, and finishes on such an occasion. A role asks between two jobs.
func (w *worker) stopping() bool { return w.term.Load() }

// work is the job itself: a mail sent, a picture made, a file written. Here it only takes its time.
func work(d time.Duration) { time.Sleep(d) }

// done writes down that a job's work was done, once more: lab:done has a count for each job.
func (w *worker) done(ctx context.Context, job any) {
	check(w.redis.HIncrBy(ctx, doneKey, fmt.Sprint(job), 1).Err())
}

const doneKey = prefix + "done"

// trace prints the first commands that a worker sends, so that the lab can show them.
type trace struct{ left int }

func (t *trace) show(cmd redis.Cmder) {
	if t.left > 0 {
		t.left--
		args := slices.Clone(cmd.Args())
		for i, arg := range args {
			// To Redis the case of its own words does not matter; to readers it does.
			if text, ok := arg.(string); ok && (i == 0 || slices.Contains(options, text)) {
				args[i] = strings.ToUpper(text)
			}
		}
		fmt.Println(commandLine + commandText(args))
	}
}

// options are the words of Redis, beyond the commands' names, that the client library sends in lower case.
var options = []string{"group", "count", "block", "streams", "nx", "px", "ex", "maxlen", "minid"}

func (t *trace) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *trace) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.show(cmd)
		return next(ctx, cmd)
	}
}

func (t *trace) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			t.show(cmd)
		}
		return next(ctx, cmds)
	}
}
