package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// TestFailureWhoseReplyIsLost: the failure was written down and its reply lost. The hash must be cleared with the ack.
func TestFailureWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := failScript.Load(context.Background(), w.client).Err(); err != nil { // as after any other failure
		t.Fatal(err)
	}
	var n atomic.Int64
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		if n.Add(1) == 1 {
			return errors.New("no")
		}
		return nil
	})
	w.behind(w.late(failScript.Hash(), answerTime+time.Second, nil), cfg)
	w.add(1)
	w.eventually("done", func() bool { return n.Load() == 2 && w.settled() })
	if fields := w.client.HGetAll(context.Background(), failKey(testStream, testGroup)).Val(); len(fields) != 0 {
		t.Errorf("left in the fail hash for ever: %v", fields)
	}
}

// TestFailHashOfAWrongType: what stands in the way of clearing the hash must not keep what is acknowledged in the table, which
// would be full after 10,000.
func TestFailHashOfAWrongType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	ctx := context.Background()
	var n atomic.Int64
	cfg := w.config(func(context.Context, *broker.Delivery) error {
		switch n.Add(1) {
		case 1:
			return errors.New("no")
		case 2:
			w.client.Set(ctx, failKey(testStream, testGroup), "x", 0)
		}
		return nil
	})
	s, _ := w.running(cfg)
	w.eventually("it is done", func() bool { return n.Load() == 2 && w.settled() })
	w.add(500)
	w.eventually("all is done", func() bool { return n.Load() == 502 && w.settled() })
	w.eventually("nothing is held", func() bool { return s.table.lens().held == 0 })
}

// TestBodyGoneClearsTheFailure: an entry that waits for its retry is deleted; its failure must go with it.
func TestBodyGoneClearsTheFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1)
	ctx := context.Background()
	failed := make(chan string, 1)
	cfg := w.config(func(_ context.Context, d *broker.Delivery) error { failed <- d.EntryID; return errors.New("no") })
	cfg.RetryMin, cfg.RetryMax = time.Minute, time.Minute
	w.start(cfg)
	id := <-failed
	w.eventually("it is written down", func() bool { return w.client.HLen(ctx, failKey(testStream, testGroup)).Val() == 1 })
	w.client.XDel(ctx, testStream, id)
	w.eventually("it is given up", func() bool { return w.pending() == 0 })
	sleep(ctx, 200*time.Millisecond)
	if n := w.client.HLen(ctx, failKey(testStream, testGroup)).Val(); n != 0 {
		t.Error("its failure stays in the hash for ever")
	}
}

// TestMalformedForAnotherGroup: a malformed dead letter that is redriven comes back with onlygroup; every other group
// would bury it once more.
func TestMalformedForAnotherGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client.XAdd(context.Background(), &redis.XAddArgs{Stream: testStream, Values: []string{"x", "y", "onlygroup", "other"}})
	w.start(w.config(func(context.Context, *broker.Delivery) error { return nil }))
	w.eventually("it is passed", w.settled)
	if n := w.deadLetters(); n != 0 {
		t.Errorf("%d dead letters of a group that it is not for", n)
	}
}

// TestBatchWithMaxDeliveriesOne: entries of a lost worker, of which each goes to the dead letters, come in one batch. The
// first is buried; the others are forgotten while they count as running.
func TestBatchWithMaxDeliveriesOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(5)
	w.steal("ghost", 1, time.Hour, w.ghost("ghost", 5)...)
	var ran atomic.Int64
	cfg := w.config(nil)
	cfg.MaxDeliveries = 1
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error { ran.Add(int64(len(ds))); return nil }
	w.start(cfg)
	w.eventually(fmt.Sprintf("all five are in the dead letters (%d are)", w.deadLetters()), func() bool { return w.deadLetters() == 5 && w.settled() })
	if ran.Load() != 0 {
		t.Errorf("%d were run beyond MaxDeliveries", ran.Load())
	}
}

// TestRejectsHoldUpTheAcksOfTheirNeighbours: a batch of which many are rejected while Redis hangs: what is done in it must not wait for each
// failure's answer.
func TestRejectsHoldUpTheAcksOfTheirNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(100)
	started := make(chan struct{})
	cfg := w.config(nil)
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
		if len(ds) < 50 {
			return nil
		}
		for i, d := range ds {
			if i%2 == 0 {
				d.Reject(errors.New("no"))
			}
		}
		_ = w.server.Pause()
		close(started)
		return nil
	}
	cfg.ClaimIdle = 5 * time.Second
	s, _ := w.running(cfg)
	<-started
	sleep(context.Background(), 4*time.Second)
	_ = w.server.Resume()
	s.table.mu.Lock()
	n := 0
	for _, e := range s.table.held {
		if e.state == acking {
			n++
		}
	}
	s.table.mu.Unlock()
	if n < 50 {
		t.Errorf("%d of 50 done entries are on their way to be acknowledged; the others wait behind the failures of their neighbours", n)
	}
}

// TestBatchThatNeverPassesIsTold: each entry passes by itself, so nothing fails; a handler that is wrong about batches stands in the log.
func TestBatchThatNeverPassesIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(100)
	var out safeBuffer
	cfg := w.config(nil)
	cfg.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
		if len(ds) > 1 {
			return errors.New("no two at a time")
		}
		return nil
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.start(cfg)
	w.eventually("all are done", w.settled)
	if text := out.String(); out.lines() != 1 || !strings.Contains(text, "one by one") || !strings.Contains(text, "no two at a time") {
		t.Errorf("the log has %d lines, want one:\n%s", out.lines(), text)
	}
}

// nilError panics where it is a nil pointer, as many do.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// TestErrorThatPanics: a nil pointer in an error is the handler's failure, and not the process's end.
func TestErrorThatPanics(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"returned": func(c *Config) {
			c.Handle = func(context.Context, *broker.Delivery) error { var e *nilError; return e }
		},
		"verdict": func(c *Config) {
			c.HandleBatch = func(_ context.Context, ds []*broker.Delivery) error {
				var e *nilError
				ds[0].Reject(e)
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := w.config(nil)
			change(&cfg)
			cfg.MaxAttempts = 2
			w.start(cfg)
			w.add(1)
			w.eventually("it is dead", func() bool { return w.deadLetters() == 1 && w.settled() })
		})
	}
}
