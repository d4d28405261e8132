package redisstream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// old appends n entries whose event time is two days ago.
func (w *world) old(n int, at time.Time) {
	w.Helper()
	pipe := w.client.Pipeline()
	for i := range n {
		ev := w.event(i)
		ev.Time = at
		pipe.Do(context.Background(), xadd(testStream, &ev)...)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) trimmer(cfg TrimConfig) *Trimmer {
	w.Helper()
	cfg.Stream = testStream
	tr, err := NewTrimmer(w.client, cfg)
	if err != nil {
		w.Fatal(err)
	}
	return tr
}

func (w *world) trim(tr *Trimmer) TrimStatus {
	w.Helper()
	if err := tr.Trim(context.Background()); err != nil {
		w.Fatal(err)
	}
	return tr.Status()
}

// read has a group read n entries and acknowledge all but the last keep.
func (w *world) read(group string, n, keep int) {
	w.Helper()
	ctx := context.Background()
	_ = w.client.XGroupCreateMkStream(ctx, testStream, group, "0").Err()
	if n == 0 {
		return
	}
	streams, err := w.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{testStream, ">"}, Count: int64(n), Block: -1}).Result()
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range streams[0].Messages[:n-keep] {
		if err := w.client.XAck(ctx, testStream, group, m.ID).Err(); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) length() int64 { return w.client.XLen(context.Background(), testStream).Val() }

func TestTrimByAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.old(450, time.Now().Add(-48*time.Hour))
	w.add(50)
	w.read("a", 500, 0)
	w.read("b", 500, 0)
	s := w.trim(w.trimmer(TrimConfig{Groups: []string{"a", "b"}}))
	if s.Removed != 450 || w.length() != 50 || s.Length != 50 || len(s.Blocked)+len(s.Unknown) != 0 {
		t.Errorf("status %+v, length %d; want 450 removed and 50 left", s, w.length())
	}
	groups := w.client.XInfoGroups(context.Background(), testStream).Val()
	if groups[0].Lag != 0 {
		t.Errorf("lag %d after trimming, want 0 and not unknown", groups[0].Lag)
	}
}

func TestTrimKeepsWhatAGroupHasNotDone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ read, keep, removed int }{
		"unread":  {read: 30, keep: 0, removed: 30},
		"pending": {read: 100, keep: 60, removed: 40},
		"nothing": {read: 0, keep: 0, removed: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.old(100, time.Now().Add(-48*time.Hour))
			w.read("a", 100, 0)
			w.read("b", test.read, test.keep)
			s := w.trim(w.trimmer(TrimConfig{Groups: []string{"a", "b"}}))
			if s.Removed != int64(test.removed) || !slices.Equal(s.Blocked, []string{"b"}) {
				t.Errorf("status %+v; want %d removed and b to block", s, test.removed)
			}
		})
	}
}

func TestTrimByLength(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(1000)
	w.read("a", 900, 0)
	tr := w.trimmer(TrimConfig{Groups: []string{"a"}, MaxLen: 300})
	if s := w.trim(tr); s.Removed != 700 || w.length() != 300 || len(s.Blocked) != 0 {
		t.Errorf("status %+v, length %d; want 700 removed", s, w.length())
	}
	w.add(500) // 800, of which 600 are not read
	if s := w.trim(tr); w.length() != 600 || !slices.Equal(s.Blocked, []string{"a"}) {
		t.Errorf("status %+v, length %d; want 600 left and a to block", s, w.length())
	}
}

func TestTrimRefusesWhileAGroupIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.old(10, time.Now().Add(-48*time.Hour))
	w.read("a", 10, 0)
	w.read("forgotten", 0, 0)
	s := w.trim(w.trimmer(TrimConfig{Groups: []string{"a", "b"}}))
	if s.Removed != 0 || !slices.Equal(s.Blocked, []string{"b"}) || !slices.Equal(s.Unknown, []string{"forgotten"}) {
		t.Errorf("status %+v; want nothing removed, b missing, forgotten unknown", s)
	}
	w.read("b", 10, 0)
	if s = w.trim(w.trimmer(TrimConfig{Groups: []string{"a", "b"}})); s.Removed != 10 || !slices.Equal(s.Unknown, []string{"forgotten"}) {
		t.Errorf("status %+v; want all removed: an unknown group keeps nothing", s)
	}
}

// TestTrimWithOddTimes: an id in the far future, no time at all, a time in the future: none stops trimming for ever, and
// none is removed before it is done.
func TestTrimWithOddTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	add := func(id string, fields ...any) {
		if err := w.client.Do(ctx, append([]any{"XADD", testStream, id}, fields...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	day := time.Now().Add(-48 * time.Hour)
	add(fmt.Sprint(day.UnixMilli(), "-0"), "x", "y") // no time: its id is old
	add("*", "x", "y")                               // no time: its id is young
	w.read("a", 2, 0)
	tr := w.trimmer(TrimConfig{Groups: []string{"a"}})
	if s := w.trim(tr); s.Removed != 1 {
		t.Errorf("removed %d, want the old one", s.Removed)
	}
	w.client.Del(ctx, testStream)
	add("99999999999999-0", "time", day.UTC().Format(time.RFC3339))
	add("*", "time", time.Now().Add(1000*time.Hour).UTC().Format(time.RFC3339)) // its id and its time lie in the future
	add("*", "time", time.Now().UTC().Format(time.RFC3339))
	w.read("a", 0, 0)
	if s := w.trim(tr); w.length() != 3 || !slices.Equal(s.Blocked, []string{"a"}) {
		t.Errorf("status %+v, length %d; want nothing removed that was not read", s, w.length())
	}
	w.read("a", 3, 0)
	if w.trim(tr); w.length() != 1 {
		t.Errorf("length %d, want the young one left", w.length())
	}
}

func TestTrimOfNoStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if s := w.trim(w.trimmer(TrimConfig{Groups: []string{"a"}})); s.Removed != 0 || !slices.Equal(s.Blocked, []string{"a"}) {
		t.Errorf("status %+v", s)
	}
}

// A preview says what Trim then does, and does nothing.
func TestTrimPreview(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg       TrimConfig
		old, keep int
		removed   int64
		blocked   []string
	}{
		"by age":                               {old: 250, removed: 250},
		"by length":                            {cfg: TrimConfig{MaxLen: 30}, removed: 270},
		"a group blocks it":                    {old: 300, keep: 80, removed: 220, blocked: []string{"a"}},
		"nothing is due":                       {removed: 0},
		"a whole number of steps, and no more": {old: 2 * trimStep, removed: 2 * trimStep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.old > 0 {
				w.old(test.old, time.Now().Add(-48*time.Hour))
			}
			if n := 300 - test.old; n > 0 {
				w.add(n)
			}
			w.read("a", 300, test.keep)
			test.cfg.Groups = []string{"a"}
			tr := w.trimmer(test.cfg)
			s, err := tr.Preview(context.Background())
			if err != nil || s.Removed != test.removed || s.Length != 300-test.removed || !slices.Equal(s.Blocked, test.blocked) {
				t.Errorf("preview %+v, %v; want %d of 300 and %v to block", s, err, test.removed, test.blocked)
			}
			if w.length() != 300 || tr.Status().Removed != 0 {
				t.Errorf("length %d, status %+v after a preview", w.length(), tr.Status())
			}
			if got := w.trim(tr); got.Removed != s.Removed || got.Length != s.Length || !slices.Equal(got.Blocked, s.Blocked) {
				t.Errorf("trimmed %+v, the preview said %+v", got, s)
			}
		})
	}
}

// TestTrimAfterSetID: a group that was set back to read again has "last delivered" below its oldest pending.
func TestTrimAfterSetID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.old(100, time.Now().Add(-48*time.Hour))
	w.read("a", 100, 60)
	if err := w.client.XGroupSetID(context.Background(), testStream, "a", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if s := w.trim(w.trimmer(TrimConfig{Groups: []string{"a"}})); s.Removed != 0 {
		t.Errorf("%d removed that the group is to read again", s.Removed)
	}
}
