package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/event"
)

// asynqCheck is how long a server waits before it looks into its empty queue again. Its shutdown waits for it too.
const asynqCheck = time.Millisecond

func asynqSettings(format string, args ...any) string {
	return fmt.Sprintf("asynq %s; ", version("github.com/hibiken/asynq")) + fmt.Sprintf(format, args...)
}

// asynqFill enqueues n orders, shared out among the queues.
func asynqFill(queues ...string) func(context.Context, *servers, int) error {
	return func(ctx context.Context, s *servers, n int) error {
		plain := redis.NewClient(s.options())
		defer plain.Close()
		pipelined, err := plain.AutoPipeline() // only so that it takes less time
		if err != nil {
			return err
		}
		client := asynq.NewClientFromRedisClient(pipelined)
		share := n / len(queues)
		return inParallel(200, share*len(queues), func(i int) error {
			return asynqEnqueue(ctx, client, i%share, orderData(i%share), queues[i/share])
		})
	}
}

func asynqEnqueue(ctx context.Context, client *asynq.Client, i int, data []byte, queue string) error {
	_, err := client.EnqueueContext(ctx, asynq.NewTask(event.TypeOrderPlaced, data), asynq.TaskID(eventID(i)), asynq.Queue(queue))
	return err
}

// asynqServer is a server for one queue, with a Redis client of its own.
type asynqServer struct {
	server *asynq.Server
	client *redis.Client
}

func newAsynqServer(s *servers, queue string, workers int) asynqServer {
	client := openRedis(s, workers+4) // each worker completes its task; the server itself takes tasks, renews leases and listens
	return asynqServer{client: client, server: asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency: workers, Queues: map[string]int{queue: 1}, TaskCheckInterval: asynqCheck, LogLevel: asynq.ErrorLevel,
	})}
}

// newAsynqServers shares the workers out: a server takes its tasks one after the other, so four do more than one.
func newAsynqServers(s *servers, queue string, workers int) []asynqServer {
	if workers%4 != 0 {
		return []asynqServer{newAsynqServer(s, queue, workers)}
	}
	var all []asynqServer
	for range 4 {
		all = append(all, newAsynqServer(s, queue, workers/4))
	}
	return all
}

func asynqServersText(workers int) string {
	if workers%4 != 0 {
		return fmt.Sprintf("one Server with Concurrency %d, TaskCheckInterval %v", workers, asynqCheck)
	}
	return fmt.Sprintf("four Servers with Concurrency %d (they do more than one with %d), TaskCheckInterval %v", workers/4, workers, asynqCheck)
}

// stop waits until what was handled is done in Redis too.
func (s asynqServer) stop() error {
	s.server.Shutdown()
	return s.client.Close()
}

// asynqWork has the servers handle the n tasks that are in their queues.
func asynqWork(ctx context.Context, c *child, n int, servers []asynqServer, handle asynq.HandlerFunc) error {
	handled := newTally(n)
	err := c.measure(func() error {
		for _, s := range servers {
			err := s.server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return handled.count(handle(ctx, t)) }))
			if err != nil {
				return err
			}
		}
		if err := handled.wait(ctx); err != nil {
			return err
		}
		for _, s := range servers {
			if err := s.stop(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return handled.exact()
}

// wantAsynq holds each queue to having done its share once, and to having nothing waiting, to be retried or given up.
func wantAsynq(queues ...string) func(context.Context, *servers, int) error {
	return func(_ context.Context, s *servers, n int) error {
		for _, q := range queues {
			got, err := asynqQueue(s, q)
			if err != nil {
				return err
			}
			if want := n / len(queues); got.Size != 0 || got.FailedTotal != 0 || got.ProcessedTotal != want {
				return fmt.Errorf("queue %s: %d left, %d failed, %d processed, want 0, 0 and %d", q, got.Size, got.FailedTotal, got.ProcessedTotal, want)
			}
		}
		return nil
	}
}

func asynqQueue(s *servers, queue string) (*asynq.QueueInfo, error) {
	client := redis.NewClient(s.options())
	defer client.Close()
	return asynq.NewInspectorFromRedisClient(client).GetQueueInfo(queue)
}

func asynqConsume(workers int) contender {
	n := 20_000
	if workers == 1 {
		n = 10_000
	}
	return contender{
		name:     fmt.Sprintf("asynq, %d", workers),
		settings: asynqSettings("%s", asynqServersText(workers)),
		n:        n,
		prepare:  asynqFill("bonus"),
		run: func(ctx context.Context, c *child) error {
			return asynqWork(ctx, c, c.n, newAsynqServers(c.servers, "bonus", workers), func(context.Context, *asynq.Task) error { return nil })
		},
		verify: wantAsynq("bonus"),
	}
}

func asynqThreeGroups() contender {
	const workers = 16
	queues := []string{"mailer", "bonus", "analytics"}
	return contender{
		name:     "asynq",
		settings: asynqSettings("a queue for each group with a task of its own for each message; for each queue %s", asynqServersText(workers)),
		n:        21_000,
		prepare:  asynqFill(queues...),
		run: func(ctx context.Context, c *child) error {
			var servers []asynqServer
			for _, q := range queues {
				servers = append(servers, newAsynqServers(c.servers, q, workers)...)
			}
			return asynqWork(ctx, c, c.n-c.n%len(queues), servers, func(context.Context, *asynq.Task) error { return nil })
		},
		verify: wantAsynq(queues...),
	}
}

func asynqBonus(workers int) contender {
	n := 4_000
	if workers == 1 {
		n = 1_600
	}
	return contender{
		name:     fmt.Sprintf("asynq, %d", workers),
		settings: asynqSettings("%s; one statement a task, pool of %d", asynqServersText(workers), workers),
		n:        n,
		prepare:  asynqFill("bonus"),
		run: func(ctx context.Context, c *child) error {
			pool, err := openPool(ctx, c.postgresURL, workers)
			if err != nil {
				return err
			}
			defer pool.Close()
			return asynqWork(ctx, c, c.n, newAsynqServers(c.servers, "bonus", workers), func(ctx context.Context, t *asynq.Task) error {
				id, ok := asynq.GetTaskID(ctx)
				if !ok {
					return errors.New("a task without an id")
				}
				return creditOne(ctx, pool, id, t.Payload())
			})
		},
		verify: func(ctx context.Context, s *servers, n int) error {
			if err := wantAsynq("bonus")(ctx, s, n); err != nil {
				return err
			}
			return wantCredits(ctx, s, n)
		},
	}
}

// asynqPublish has that many goroutines enqueue, each one task after the other.
func asynqPublish(clients int) contender { return asynqPublisher(clients, false) }

// asynqPublishPipelined gives the client go-redis's AutoPipeline, as watermillPublishPipelined does.
func asynqPublishPipelined(clients int) contender { return asynqPublisher(clients, true) }

func asynqPublisher(clients int, pipelined bool) contender {
	name, n, how := fmt.Sprintf("asynq, %d", clients), 60_000, "a Redis client with as many connections"
	if clients == 1 {
		n = 25_000
	}
	if pipelined {
		name, how = name+" pipelined", "go-redis's AutoPipeline (experimental) as its Redis client"
	}
	return contender{
		name:     name,
		settings: asynqSettings("one Client, goroutines: %d, %s", clients, how),
		n:        n,
		run: func(ctx context.Context, c *child) error {
			redisClient, err := publishingClient(c.servers, clients, pipelined)
			if err != nil {
				return err
			}
			defer redisClient.Close()
			client := asynq.NewClientFromRedisClient(redisClient)
			orders := orderPayloads()
			return c.measure(func() error {
				return inParallel(clients, c.n, func(i int) error {
					return asynqEnqueue(ctx, client, i, orders[i%len(orders)], "bonus")
				})
			})
		},
		verify: func(_ context.Context, s *servers, n int) error {
			got, err := asynqQueue(s, "bonus")
			if err == nil && (got.Pending != n || got.Size != n) {
				err = fmt.Errorf("%d tasks pending, %d in all, want %d", got.Pending, got.Size, n)
			}
			return err
		},
	}
}

func asynqLatency() contender {
	const workers = 16
	return contender{
		name:     "asynq",
		settings: asynqSettings("one Client; one Server with Concurrency %d, TaskCheckInterval %v (by default 1s)", workers, asynqCheck),
		n:        latencyN,
		run: func(ctx context.Context, c *child) error {
			redisClient := openRedis(c.servers, workers)
			defer redisClient.Close()
			client := asynq.NewClientFromRedisClient(redisClient)
			server := newAsynqServer(c.servers, "bonus", workers)
			watch := newStopwatch(c.n)
			err := server.server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				return watch.handle(id)
			}))
			if err != nil {
				return err
			}
			return watch.run(ctx, c, func(ctx context.Context, i int, data []byte) error {
				return asynqEnqueue(ctx, client, i, data, "bonus")
			}, server.stop)
		},
		verify: warmed(wantAsynq("bonus")),
	}
}
