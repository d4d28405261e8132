package outbox

import "time"

const (
	// lateIDs is how far below the last row that went out a look begins: ids are committed out of order, but seldom by more than this.
	lateIDs = 250
	// lookShare: all rows are looked at so seldom that it takes at most one part of so many of the time.
	lookShare = 20
)

// floor is where a look at what waits begins. Until a VACUUM, a row that was marked is still in the index of what waits, before all that
// do wait; and while some transaction holds an old snapshot, a dump for instance, Postgres visits each of them in each look. So a look
// begins shortly below what this relay knows to be published. A row below that, committed that late or put back by somebody,
// is found by a look at all rows: once a sweep where it is quiet, up to twice where it is not, and less often where that takes long.
type floor struct {
	id    int64
	whole time.Time // when to look at all rows again
}

// look returns the id to begin with, and what to call once the look has ended.
func (f *floor) look(sweep time.Duration) (from int64, ended func()) {
	began := time.Now()
	if began.Before(f.whole) {
		return f.id, func() {}
	}
	return 0, func() {
		pause := max(sweep/2, min(lookShare*time.Since(began), 10*sweep))
		f.whole = time.Now().Add(pause)
	}
}

// follow says that all rows up to id that could be seen are published, or left alone for a reason. It may be less than before: somebody
// who empties the table may let the ids begin again.
func (f *floor) follow(id int64) { f.id = max(id-lateIDs, 0) }

// fall says that some may wait again.
func (f *floor) fall() { f.id = 0 }

// idsFrom are the ids in lists from id on, not nil: NULL would exclude every row.
func idsFrom(from int64, lists ...[]int64) []int64 {
	ids := []int64{}
	for _, list := range lists {
		for _, id := range list {
			if id >= from {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
