package books_test

import (
	"testing"

	"example.com/orderfanout/internal/books"
)

// TestCountThatLies: Redis tells of entries that the group has not read, as it has been seen to do after a restart, and there are
// none behind the last that it was given.
func TestCountThatLies(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.do("XADD", "orders", "*", "id", "e", "type", "t")
	}
	last := w.redis.XRevRangeN(t.Context(), "orders", "+", "-", 1).Val()[0].ID
	for _, g := range books.Groups {
		w.do("XGROUP", "SETID", "orders", g, last, "ENTRIESREAD", 1)
	}
	if lag := w.redis.XInfoGroups(t.Context(), "orders").Val()[0].Lag; lag != 2 {
		t.Fatalf("lag %d; this Redis does not lie any more", lag)
	}
	m, err := books.ReadMotion(t.Context(), w.fanout.db, w.fanout.redis)
	if err != nil || !m.Settled() {
		t.Errorf("%s, %v; want nothing under way", m, err)
	}
}
