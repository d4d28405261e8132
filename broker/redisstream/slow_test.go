package redisstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// TestSlowLink: what is pending does not come over the link within the time for an answer, nor does what is read.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, opts := w.link()
	for i := range 200 {
		err := w.client.Do(context.Background(), "XADD", testStream, "*", "id", fmt.Sprint(i), "type", "t", "data", strings.Repeat("x", 64<<10)).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.ghost("ghost", 100)
	slow.Delay(40 * time.Millisecond) // 1.6 MB/s: 100 entries take four seconds, 200 eight
	cfg := w.config(nil)
	cfg.HandleBatch = func(context.Context, []*broker.Delivery) error { return nil }
	cfg.ClaimIdle = 5 * time.Second
	var out safeBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	w.behind(opts, cfg)
	deadline := time.Now().Add(2 * time.Minute) // it takes twenty seconds
	for !w.settled() {
		if time.Now().After(deadline) {
			t.Fatalf("%d pending after two minutes", w.pending())
		}
		sleep(context.Background(), 100*time.Millisecond)
	}
	if strings.Contains(out.String(), "read: failing") {
		t.Errorf("a read that went on was given up:\n%s", out.String())
	}
}

// TestDrainOnASlowLink: what a read is still to bring is not waited for.
func TestDrainOnASlowLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, opts := w.link()
	for i := range 60 {
		err := w.client.Do(context.Background(), "XADD", testStream, "*", "id", fmt.Sprint(i), "type", "t", "data", strings.Repeat("x", 1<<20)).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	slow.Delay(40 * time.Millisecond) // 1.6 MB/s: 60 entries take more than half a minute
	cfg := w.config(nil)
	cfg.HandleBatch = func(context.Context, []*broker.Delivery) error { return nil }
	_, stop := w.behind(opts, cfg)
	w.eventually("a read is under way", func() bool { return w.pending() == 60 })
	sleep(context.Background(), time.Second)
	began := time.Now()
	stop()
	if took := time.Since(began); took > 15*time.Second { // a few commands of three seconds at most
		t.Errorf("the drain took %s", took)
	}
}
