package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/link"
)

// do makes one fault and mends it after its time.
func (w *chaosWorld) do(f fault) {
	sl := w.slots[f.service][f.replica]
	mailer := w.slots[1][f.replica]
	w.mu.Lock()
	w.byKind[f.kind]++
	w.mu.Unlock()
	switch f.kind {
	case "kill":
		w.down(sl, f.lasts/2, w.end)
	case "freeze":
		sl.mu.Lock()
		defer sl.mu.Unlock()
		in := sl.proc.Load()
		_ = in.Signal(syscall.SIGSTOP)
		time.Sleep(f.lasts)
		_ = in.Signal(syscall.SIGCONT)
	case "roll":
		for _, sl := range w.slots[f.service] {
			w.down(sl, 0, w.drain)
			w.awaitReady(sl)
		}
	case "scale":
		w.scale(sl, f)
	case "redis killed", "redis killed while the disk is busy":
		w.redisMu.Lock()
		defer w.redisMu.Unlock()
		lose := func() {}
		if f.kind != "redis killed" {
			stop := w.busyDisk()
			time.Sleep(time.Second)
			defer stop()
			lose = w.loseSince()
			time.Sleep(time.Second)
		}
		last := w.lastEntry()
		w.must(w.redis.Kill())
		lose()
		time.Sleep(f.lasts / 3)
		w.must(w.redis.Restart())
		if last != "" && !w.hasEntry(last) {
			w.tailLost.Add(1)
		}
	case "redis frozen":
		w.redisMu.Lock()
		defer w.redisMu.Unlock()
		w.must(w.redis.Pause())
		time.Sleep(f.lasts)
		w.must(w.redis.Resume())
	case "postgres killed":
		w.postgresMu.Lock()
		defer w.postgresMu.Unlock()
		w.must(w.postgres.Kill())
		time.Sleep(f.lasts / 3)
		w.must(w.postgres.Restart())
	case "postgres frozen":
		w.postgresMu.Lock()
		defer w.postgresMu.Unlock()
		w.must(w.postgres.Pause())
		time.Sleep(f.lasts)
		w.must(w.postgres.Resume())
	case "network cut", "network cut one way", "network slow":
		spoil(sl.wire(f.n), f)
	case "mail refused":
		w.refuseWith.Store(451)
		time.Sleep(f.lasts)
		w.refuseWith.Store(0)
	case "mail server says goodbye":
		w.refuseWith.Store(421)
		time.Sleep(f.lasts)
		w.refuseWith.Store(0)
	case "mail answers lost":
		lost := 0
		mailer.mail.Judge(func(request []byte) link.Fate {
			if bytes.HasSuffix(request, []byte("\r\n.\r\n")) && lost < f.n {
				lost++
				return link.Fate{DropAnswer: true}
			}
			return link.Fate{}
		})
		time.Sleep(f.lasts)
		mailer.mail.Judge(nil)
	case "poison":
		w.addPoison(f)
	case "duplicates":
		w.addDuplicates(f.n)
	default:
		w.Errorf("nobody knows how to make %q", f.kind)
	}
}

// lastEntry is the id of the stream's last entry, "" where Redis does not answer.
func (w *chaosWorld) lastEntry() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	entries, err := w.client.XRevRangeN(ctx, "orders", "+", "-", 1).Result()
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}

func (w *chaosWorld) hasEntry(id string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	entries, err := w.client.XRange(ctx, "orders", id, id).Result()
	return err != nil || len(entries) == 1
}

func (w *chaosWorld) must(err error) {
	if err != nil {
		w.Error(err)
	}
}

// down ends the slot's process in a way and starts it again after a while.
func (w *chaosWorld) down(sl *slot, lasts time.Duration, end func(*slot)) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	end(sl)
	time.Sleep(lasts)
	w.start(sl)
}

// drain stops the slot's process in order.
func (w *chaosWorld) drain(sl *slot) { w.terminate(sl.proc.Load()) }

func (w *chaosWorld) terminate(in *instance) {
	young := in.log.tail(1) == "" // it does not listen to signals yet
	_ = in.Signal(syscall.SIGTERM)
	if !in.Wait(45 * time.Second) {
		w.Errorf("%s %s does not end within 45s of its SIGTERM", in.service, in.name)
		_ = in.Signal(syscall.SIGKILL)
		return
	}
	if code := in.State().ExitCode(); code != 0 && !young {
		w.Errorf("%s %s ended with %d, want 0\n%s", in.service, in.name, code, in.log.tail(20))
	}
}

// awaitReady waits until the slot's process is ready, as a rolling restart does, but no longer than other faults may last.
func (w *chaosWorld) awaitReady(sl *slot) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && !sl.proc.Load().ready(); {
		time.Sleep(50 * time.Millisecond)
	}
}

// scale lets a third replica come and go.
func (w *chaosWorld) scale(sl *slot, f fault) {
	in, err := w.spawn(sl.service, fmt.Sprint("extra-", f.at.Milliseconds()), sl.env...)
	if err != nil {
		w.Error(err)
		return
	}
	time.Sleep(f.lasts)
	if f.n%2 == 0 {
		w.terminate(in)
		return
	}
	_ = in.Signal(syscall.SIGKILL)
	in.Wait(10 * time.Second)
}

// wire is one of the slot's ways to a server that it uses.
func (sl *slot) wire(n int) *link.Link {
	switch {
	case sl.service == "mailer" && n%3 == 0:
		return sl.mail
	case (sl.service == "orders" || sl.service == "bonus") && n%2 == 0:
		return sl.postgres
	}
	return sl.redis
}

func spoil(l *link.Link, f fault) {
	switch f.kind {
	case "network cut":
		l.Cut()
	case "network cut one way":
		l.Stall(f.n % 2)
	default:
		l.Delay(time.Duration(f.n) * 20 * time.Millisecond)
	}
	time.Sleep(f.lasts)
	l.Mend()
}

// loseSince returns what takes from a Redis that is dead all that it has written since, as when the whole machine dies and
// nothing of that had reached the disk: with an fsync every second Redis may have acknowledged it all the same.
func (w *chaosWorld) loseSince() (lose func()) {
	file, size := w.appendOnlyFile()
	return func() {
		if now, _ := w.appendOnlyFile(); file != "" && now == file { // else it was rewritten meanwhile
			w.must(os.Truncate(file, size))
		}
	}
}

// appendOnlyFile is the file that Redis appends to, and its size.
func (w *chaosWorld) appendOnlyFile() (file string, size int64) {
	files, err := filepath.Glob(filepath.Join(w.redisDir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return "", 0 // it is being rewritten
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return "", 0
	}
	return files[0], info.Size()
}

// busyDisk keeps the disk busy with writes that are forced out.
func (w *chaosWorld) busyDisk() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	path := filepath.Join(w.TempDir(), "busy")
	go func() {
		defer close(ended)
		block := make([]byte, 8<<20)
		for {
			select {
			case <-done:
				return
			default:
			}
			f, err := os.Create(path)
			if err != nil {
				w.Error(err)
				return
			}
			for range 8 {
				_, _ = f.Write(block)
				_ = f.Sync()
			}
			_ = f.Close()
		}
	}()
	return func() { close(done); <-ended }
}

// addPoison appends entries that nobody can do. Redis may be away, or take them without an answer: then an XADD that is repeated would be a
// second entry, which nobody has counted.
func (w *chaosWorld) addPoison(f fault) {
	once := w.redis.Options()
	once.MaxRetries = -1
	client := redis.NewClient(once)
	defer client.Close()
	for i := range f.n {
		id := fmt.Sprintf("poison-%d-%d", f.at.Milliseconds(), i)
		values := [][]string{
			{"x", "y"},
			{"id", id, "type", "order.placed.v1", "data", "{"},
			{"id", id, "type", "order.placed.v1", "data", ""},
			{"id", id, "type", "order.placed.v1", "data", `{"order_id":"` + id + `","total":99999999999999999999}`},
		}[i%4]
		client.XAdd(context.Background(), &redis.XAddArgs{Stream: "orders", Values: values})
		w.mu.Lock()
		w.poison++
		w.mu.Unlock()
	}
}

// addDuplicates appends the last n entries once more, as they are.
func (w *chaosWorld) addDuplicates(n int) {
	ctx := context.Background()
	entries, err := w.client.XRevRangeN(ctx, "orders", "+", "-", int64(n)).Result()
	if err != nil {
		return // Redis is away
	}
	for _, e := range entries {
		if e.Values["type"] == "order.placed.v1" && e.Values["time"] != nil {
			w.client.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: e.Values})
		}
	}
}
