package books_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/books"
)

// runID is the run_id of the world's Redis.
func (w *world) runID() string {
	w.Helper()
	_, rest, _ := strings.Cut(w.do("INFO", "server").(string), "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

// relayKnows writes down where the broker stood when the relay last published.
func (w *world) relayKnows(server, last string) {
	w.Helper()
	w.exec(`insert into outbox_relay (name, holder, expires_at, broker_server, broker_last) values ('outbox', 'one', 'epoch', $1, $2)
		on conflict (name) do update set broker_server = $1, broker_last = $2`, server, last)
}

func (w *world) settled() bool {
	w.Helper()
	m, err := w.cfg.ReadMotion(context.Background(), w.fanout.db, w.fanout.redis)
	if err != nil {
		w.Fatal(err)
	}
	w.Log(m)
	return m.Settled()
}

// all is the same figure for each group.
func all(name string, n int64) map[string]int64 {
	return map[string]int64{"mailer " + name: n, "bonus " + name: n, "analytics " + name: n}
}

// Redis lost its last entries, and the relay has not noticed: it will publish those rows again.
func TestLostTail(t *testing.T) {
	for name, lose := range map[string]func(w *world, publish func()){
		"another run of the server": func(w *world, publish func()) {
			kept := w.do("DUMP", "orders")
			publish()
			w.do("RESTORE", "orders", 0, kept, "REPLACE")
			w.relayKnows("before", "1-1") // and that was long ago
		},
		"the stream went back": func(w *world, publish func()) {
			kept := w.do("DUMP", "orders")
			publish()
			w.do("RESTORE", "orders", 0, kept, "REPLACE")
		},
		"the stream is gone": func(w *world, publish func()) {
			publish()
			w.do("DEL", "orders")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.done(2)
			if !w.settled() {
				t.Error("not settled without a loss")
			}
			var p placed
			lose(w, func() {
				p = w.accept(100)
				w.publish(&p)
				w.relayKnows(w.runID(), p.entry)
			})
			r := w.want(books.Waiting, all("outbox", 1))
			w.wantStates(p, books.Waiting, "outbox, outbox, outbox")
			if !r.Outbox.TailLost {
				t.Error("it does not say why")
			}
			if w.settled() {
				t.Error("settled, and the relay has something to publish again")
			}
			// The relay notices, and publishes it again.
			if w.redis.Exists(t.Context(), "orders").Val() == 0 {
				for _, g := range books.Groups {
					w.do("XGROUP", "CREATE", "orders", g, "0", "MKSTREAM")
				}
			}
			w.publish(&p)
			w.relayKnows(w.runID(), p.entry)
			w.want(books.Waiting, all("unread", 1))
			for _, g := range books.Groups {
				w.finish(g, p)
			}
			w.want(books.Balanced, nil)
			if !w.settled() {
				t.Error("not settled in the end")
			}
		})
	}
}

// What was published before the window, or for another group, does not come again by itself.
func TestLostBeforeTheTail(t *testing.T) {
	w := newWorld(t)
	w.done(1)
	old, only := w.accept(100), w.accept(200)
	for _, p := range []*placed{&old, &only} {
		w.publish(p)
		w.do("XDEL", "orders", p.entry)
	}
	w.exec(`update outbox set published_at = published_at - interval '15 seconds' where event_id = $1`, old.event)
	w.exec(`update outbox set only_group = 'bonus' where event_id = $1`, only.event)
	w.relayKnows("before", "1-1")
	w.want(books.Wrong, map[string]int64{"bonus outbox": 1, "mailer lost": 2, "bonus lost": 1, "analytics lost": 2})
	w.wantStates(old, books.Wrong, "lost, lost, lost")
	w.wantStates(only, books.Wrong, "lost, outbox, lost")
	w.cfg.RepublishWindow = time.Minute
	w.want(books.Wrong, map[string]int64{"mailer outbox": 1, "bonus outbox": 2, "analytics outbox": 1, "mailer lost": 1, "analytics lost": 1})
	w.wantStates(old, books.Waiting, "outbox, outbox, outbox")
	w.relayKnows(w.runID(), only.entry) // the relay noticed, and there is no row left that waits
	w.want(books.Wrong, all("lost", 2))
	w.relayKnows("before", "1-1")
	w.exec(`delete from outbox`) // after OUTBOX_RETENTION
	w.want(books.Wrong, map[string]int64{"mailer unknown": 2, "bonus lost": 2, "analytics lost": 2})
}

// before calls do once, before the first command of that name.
type before struct {
	command string
	once    sync.Once
	do      func()
}

func (b *before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == b.command {
			b.once.Do(b.do)
		}
		return next(ctx, cmd)
	}
}

func (b *before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Redis loses its tail while the books are read: sums that were read before it have what is gone now.
func TestTailLostWhileTheBooksAreRead(t *testing.T) {
	w := newWorld(t)
	w.done(2)
	kept := map[string]any{}
	keys := []string{"orders", "analytics:{stats}:totals", "analytics:{stats}:days"}
	p := w.accept(999)
	keys = append(keys, "analytics:{stats}:day:"+p.at.Format(time.DateOnly), "analytics:{stats}:counted:"+p.at.Format(time.DateOnly))
	for _, key := range keys {
		kept[key] = w.do("DUMP", key)
	}
	w.publish(&p)
	w.finish("analytics", p)
	w.relayKnows(w.runID(), p.entry)
	w.fanout.redis.AddHook(&before{command: "time", do: func() {
		for _, key := range keys {
			w.do("RESTORE", key, 0, kept[key], "REPLACE")
		}
	}})
	w.want(books.Waiting, all("outbox", 1))
}
