package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillredis "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver"
)

const (
	// killedLimit is how long the message of a killed worker is waited for.
	killedLimit = 3 * time.Minute
	// settled is how long a worker has before what comes next, so that it is at rest by then.
	settled = 2 * time.Second
	// group is the consumer group or the queue of a work that needs only one.
	group = "bonus"
)

// killable is a system whose worker is killed with a message in its hands. Its settings are the defaults where recovery is concerned.
type killable struct {
	name, settings string
	// publish adds the only message.
	publish func(ctx context.Context, s *servers) error
	// work runs a worker that has handle do the work. It may return before the worker ends.
	work func(ctx context.Context, s *servers, handle func()) error
}

var killables = []killable{
	{
		name: "ours", settings: "ClaimIdle 5s",
		publish: func(ctx context.Context, s *servers) error {
			p, err := redisstream.NewPublisher(s.options(), redisstream.PublisherConfig{Stream: stream})
			if err != nil {
				return err
			}
			defer p.Close()
			_, err = p.Publish(ctx, []broker.Event{orderEvent(0)}, broker.Position{})
			return err
		},
		work: func(ctx context.Context, s *servers, handle func()) error {
			c, err := redisstream.NewConsumer(s.options(), redisstream.Config{Stream: stream, Group: group, Name: fmt.Sprint(os.Getpid()),
				Logger: slog.New(slog.DiscardHandler), Handle: func(context.Context, *broker.Delivery) error { handle(); return nil }})
			if err != nil {
				return err
			}
			return c.Run(ctx)
		},
	},
	{
		name: "watermill", settings: watermillSettings("MaxIdleTime 60s, ClaimInterval 5s"),
		publish: func(ctx context.Context, s *servers) error {
			p, err := watermillredis.NewPublisher(watermillredis.PublisherConfig{Client: openRedis(s, 1)}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			defer p.Close()
			return p.Publish(stream, message.NewMessageWithContext(ctx, eventID(0), orderData(0)))
		},
		work: func(ctx context.Context, s *servers, handle func()) error {
			g, err := newWatermillGroup(s, group, 1)
			if err != nil {
				return err
			}
			return g.start(ctx, func(*message.Message) error { handle(); return nil })
		},
	},
	{
		name: "asynq", settings: asynqSettings("a lease of 30s, looked after each minute, and then the delay of a retry"),
		publish: func(ctx context.Context, s *servers) error {
			client := openRedis(s, 1)
			defer client.Close()
			return asynqEnqueue(ctx, asynq.NewClientFromRedisClient(client), 0, orderData(0), group)
		},
		work: func(_ context.Context, s *servers, handle func()) error {
			return newAsynqServer(s, group, 1).server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { handle(); return nil }))
		},
	},
	{
		name: "River", settings: riverSettings("RescueStuckJobsAfter 1h"),
		publish: func(ctx context.Context, s *servers) error { return riverFill(group)(ctx, s, 1) },
		work: func(ctx context.Context, s *servers, handle func()) error {
			pool, err := openPool(ctx, s.postgresURL, 8)
			if err != nil {
				return err
			}
			client, err := newRiverWorker(pool, riverCooldown, 1, func(context.Context, *river.Job[orderArgs]) error { handle(); return nil }, group)
			if err != nil {
				return err
			}
			return client.Start(ctx)
		},
	},
}

// killed prints how long after a worker's kill -9 another one has its message.
func killed(ctx context.Context, s *servers, to io.Writer) error {
	fmt.Fprint(to, "\na worker is killed when it has had a message for four seconds: seconds until another one has it\n")
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, k := range killables {
		progress("killed worker: %s, %s at most", k.name, killedLimit)
		took, err := k.kill(ctx, s)
		if err != nil {
			return fmt.Errorf("killed worker, %s: %w", k.name, err)
		}
		text := fmt.Sprintf("%.1f", took.Seconds())
		if took > killedLimit {
			text = fmt.Sprintf("over %.0f", killedLimit.Seconds())
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", k.name, text, k.settings)
	}
	progress("")
	return t.Flush()
}

// kill returns how long it took, or more than killedLimit.
func (k killable) kill(ctx context.Context, s *servers) (time.Duration, error) {
	if err := s.clear(ctx); err != nil {
		return 0, err
	}
	if err := k.publish(ctx, s); err != nil {
		return 0, err
	}
	var workers [2]*worker
	for i := range workers {
		w, err := startWorker(s, k.name)
		if err != nil {
			return 0, err
		}
		defer w.kill()
		workers[i] = w
		if i == 0 {
			if _, err := w.await(ctx, time.Minute); err != nil {
				return 0, err
			}
		}
		if err := pause(ctx, settled); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	workers[0].kill()
	at, err := workers[1].await(ctx, killedLimit)
	switch {
	case errors.Is(err, errNothing):
		return killedLimit + 1, nil
	case err != nil:
		return 0, err
	case at.Before(began):
		return 0, errors.New("both workers got the message before one was killed")
	}
	return at.Sub(began), nil
}

// worker is a process with a worker of a killable.
type worker struct {
	process *localserver.Process
	got     chan time.Time // when it had the message
}

func startWorker(s *servers, name string) (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "worker", name)
	cmd.Env = append(os.Environ(), s.env()...)
	w := &worker{got: make(chan time.Time, 1)}
	w.process, err = localserver.StartProcess(cmd, w, syscall.SIGKILL)
	return w, err
}

// Write is called with what the worker prints: it has the message.
func (w *worker) Write(p []byte) (int, error) {
	select {
	case w.got <- time.Now():
	default:
	}
	return len(p), nil
}

func (w *worker) kill() { _ = w.process.Signal(syscall.SIGKILL) }

// errNothing says that the message did not come in time.
var errNothing = errors.New("a worker did not get the message")

func (w *worker) await(ctx context.Context, most time.Duration) (time.Time, error) {
	select {
	case at := <-w.got:
		return at, nil
	case <-w.process.Exited():
		return time.Time{}, errors.New("a worker ended")
	case <-time.After(most):
		return time.Time{}, errNothing
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// workerMain is the worker's process: worker NAME. It ends when it is killed.
func workerMain(ctx context.Context, args []string) error {
	i := slices.IndexFunc(killables, func(k killable) bool { return len(args) == 1 && k.name == args[0] })
	if i < 0 {
		return errors.New("worker: NAME of a killable")
	}
	var once sync.Once
	err := killables[i].work(ctx, serversOfEnv(), func() {
		once.Do(func() { fmt.Println("got it") })
		<-ctx.Done()
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
