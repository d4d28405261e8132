package outbox_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"example.com/orderfanout/outbox"
)

// lossy is for tests in which the broker loses something.
var lossy = outbox.RelayConfig{Sweep: 50 * time.Millisecond, RepublishWindow: time.Minute}

// The stream is lost and nothing new comes: the relay notices by itself, and publishes what was published within the
// window before the newest row, and nothing older.
func TestLossWithoutTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, lossy)
	w.add(t, eventIDs(0, 20)...)
	w.waitPublished(t)
	// All of it was long ago; what counts is how long before the newest.
	w.exec(t, `update outbox set published_at = published_at - case when event_id < 'e000005' then interval '1 hour 2 minutes' else interval '1 hour' end`)
	if err := w.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.wantAll(t, eventIDs(5, 15))
	w.waitPublished(t)
	w.waitIdle(t)
	if got := w.entries(t); !slices.Equal(got, eventIDs(5, 15)) {
		t.Errorf("entries = %q, want the last 15 once, in order", got)
	}
}

// A killed Redis comes back without its tail, and with the next order the relay sees it.
func TestLossByKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := w.start(t, lossy)
	w.add(t, eventIDs(0, 20)...)
	w.waitPublished(t)
	w.truncateAOF(t)
	w.add(t, "after")
	w.wantAll(t, append(eventIDs(0, 20), "after"))
	w.waitPublished(t)
	if n := relay.Stats().Republished; n != 20 {
		t.Errorf("Republished = %d, want 20", n)
	}
}

// truncateAOF kills Redis and starts it again with nothing of what it had.
func (w *world) truncateAOF(t *testing.T) {
	t.Helper()
	dir, err := w.client.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir["dir"] + "/appendonlydir"); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Restart(); err != nil {
		t.Fatal(err)
	}
}

// The relay dies between noticing a loss and writing that down: the next one notices it again.
func TestLossNoticedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay, err := outbox.NewRelay(w.pool, w, w.config(never))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	w.add(t, eventIDs(0, 5)...)
	relay.Wake()
	w.waitPublished(t)
	w.truncateAOF(t)
	// From here on nothing can be marked.
	w.exec(t, `revoke update on outbox from orders`)
	w.add(t, "after")
	relay.Wake()
	w.wantAll(t, []string{"after"})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.exec(t, `grant update on outbox to orders`)
	w.start(t, lossy)
	w.wantAll(t, append(eventIDs(0, 5), "after"))
	w.waitPublished(t)
}

// A stop without a loss means a new server all the same, so the window goes out again, and no more than that.
func TestRestartRepublishesTheWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, lossy)
	w.add(t, eventIDs(0, 5)...)
	w.waitPublished(t)
	w.exec(t, `update outbox set published_at = published_at - interval '2 minutes' where event_id < 'e000003'`)
	if err := w.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	w.wantEntries(t, append(eventIDs(0, 5), eventIDs(3, 2)...))
	w.add(t, "after")
	w.wantEntries(t, append(append(eventIDs(0, 5), eventIDs(3, 2)...), "after"))
}

// A row was marked while the database's clock was ahead: a loss is repaired all the same.
func TestLossBesideARowOfTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, lossy)
	w.add(t, "early")
	w.waitPublished(t)
	w.exec(t, `update outbox set published_at = published_at + interval '1 hour'`)
	w.add(t, eventIDs(0, 20)...)
	w.waitPublished(t)
	w.truncateAOF(t)
	w.wantAll(t, append(eventIDs(0, 20), "early"))
}
