package redisstream

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lookahead is how much work is read ahead of the workers: quick handlers never wait for a reply of Redis, and
	// slow ones take no more entries from other consumers than they can start at once.
	lookahead = 20 * time.Millisecond
	// aheadMost bounds the entries read ahead, where two batches for each worker are not more.
	aheadMost = 512
	// quickBatch is how long a full batch may take for two of them to be read ahead for each worker: all may end at once, and each finds
	// a full one.
	quickBatch = 50 * time.Millisecond
	// readMost bounds one read.
	readMost = 256
)

var errLost = errors.New("another consumer owns the entry now")

// table holds the entries that this consumer owns, and hands them to its workers. Its rules on who may run when:
//
//   - an entry on which two workers were lost runs with nothing beside it;
//   - after an outage of a dependency one run at a time probes whether it is back;
//   - an entry that failed with others in a batch runs in a batch of one.
type table struct {
	cfg  *Config
	mu   sync.Mutex
	work *sync.Cond // a worker may find something in pick

	held    map[string]*entry
	queue   queue
	solo    queue // entries that must run alone
	tried   queue // entries that met the outage that lasts; run again when nothing else is queued, or after it
	waiting dueHeap
	epoch   uint64 // counts the times that the group was made

	busy      int  // runs going on
	hopeless  int  // those of them whose handler ignores its cancel
	only      *run // the one that is exclusive, or probes
	exclusive bool // one of them must be the only one
	closed    bool
	cost      time.Duration // what an entry takes of a worker's time, averaged over the last runs
	lastRun   time.Time     // when a run last ended, or the first entry after a pause came in
	stalled   time.Time     // since when all that ran was put off; zero where it was not

	outages     int // runs in a row that met a dependency that is down
	pausedUntil time.Time
	probing     bool
	outage      error
	successes   uint64

	readerWaits bool
	room        chan struct{} // tells the reader to look again
	tick        chan struct{} // tells the clock to look again
}

func newTable(cfg *Config) *table {
	t := &table{cfg: cfg, held: map[string]*entry{}, room: make(chan struct{}, 1), tick: make(chan struct{}, 1)}
	t.work = sync.NewCond(&t.mu)
	return t
}

// add takes entries in, to be run or, where they are due later, to wait. One that is held already is not taken twice: it
// was read again because the group was made anew.
func (t *table) add(entries []*entry) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		e.epoch = t.epoch
		if have := t.held[e.EntryID]; have != nil {
			if have.raw == e.raw {
				have.epoch, have.renewed = t.epoch, e.renewed
				continue
			}
			have.lost, have.replaced = true, true // of a stream that is no more
			if have.cancel != nil {
				have.cancel(errLost)
			}
		}
		t.held[e.EntryID] = e
		if e.due.After(now) {
			t.putOff(e)
		} else {
			t.ready(e)
		}
	}
}

// ready queues an entry for a worker. The caller holds the lock.
func (t *table) ready(e *entry) {
	if t.busy == 0 && t.queue.len() == 0 && t.solo.len() == 0 {
		t.lastRun = time.Now()
	}
	e.state = queued
	switch {
	case t.outages > 0 && e.unavailable > 0:
		t.tried.push(e)
	case e.alone():
		t.solo.push(e)
	default:
		t.queue.push(e)
	}
	t.work.Signal()
}

// putOff lets an entry wait until its due time. The caller holds the lock.
func (t *table) putOff(e *entry) {
	e.state = waiting
	heap.Push(&t.waiting, e)
	notify(t.tick)
}

// next waits for work and marks it as running. It returns nil when the table is closed.
func (t *table) next() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed {
		now := time.Now()
		if batch := t.pick(now); batch != nil {
			t.busy++
			r := &run{}
			if t.exclusive || t.probing {
				t.only = r
			}
			for _, e := range batch {
				e.state, e.began, e.cancel, e.run = running, now, nil, r
			}
			t.offer()
			return batch
		}
		t.offer() // what was lost is off the queue now
		t.work.Wait()
	}
	return nil
}

func (t *table) pick(now time.Time) []*entry {
	if t.exclusive || now.Before(t.pausedUntil) {
		return nil
	}
	probe := t.outages > 0
	if probe && t.probing {
		return nil
	}
	if t.solo.drop(); t.solo.len() > 0 && (!probe || t.queue.len() == 0) {
		if t.busy > t.hopeless {
			return nil // those that run finish first, and none starts meanwhile
		}
		t.exclusive, t.probing = true, probe
		return []*entry{t.solo.pop()}
	}
	if t.queue.drop(); t.queue.len() == 0 {
		if t.tried.drop(); !probe || t.tried.len() == 0 {
			return nil
		}
		e := t.tried.pop()
		if e.alone() {
			t.solo.push(e)
			return t.pick(now)
		}
		t.queue.push(e)
	}
	t.probing = probe
	batch := []*entry{t.queue.pop()}
	if t.cfg.HandleBatch == nil || probe || batch[0].unfit() {
		return batch
	}
	for t.queue.drop(); len(batch) < t.cfg.BatchSize && t.queue.len() > 0 && !t.queue.first().unfit(); t.queue.drop() {
		batch = append(batch, t.queue.pop())
	}
	return batch
}

// unfit reports whether the entry must be kept out of batches.
func (e *entry) unfit() bool { return e.single || e.bury != nil || e.failures > 0 }

// ran notes the end of a run of n entries.
func (t *table) ran(r *run, n int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if r.hopeless {
		t.hopeless--
	}
	t.lastRun = time.Now()
	if n > 0 {
		per := max(took/time.Duration(n), 1)
		t.cost += (per - t.cost) / 8
		if t.cost == 0 || per > lookahead && t.cost < per {
			t.cost = per // a slow one may be the first of many: stop reading ahead at once
		}
	}
	if r == t.only { // not the end of one that ran beside it
		t.only, t.exclusive, t.probing = nil, false, false
		t.work.Broadcast()
	}
	if t.solo.len() > 0 {
		t.work.Broadcast() // all have waited for it
	}
	t.offer()
}

// giveUp is done with an entry whose handler ignores its cancel: nothing waits for that run any more. The caller holds
// the lock.
func (t *table) giveUp(e *entry) {
	e.state = stuck
	if e.run.hopeless {
		return
	}
	e.run.hopeless = true
	t.hopeless++
	if e.run == t.only {
		t.only, t.exclusive, t.probing = nil, false, false
	}
	t.work.Broadcast()
}

// awaitRoom waits until there is room for entries and returns for how many, or 0 when ctx is done.
func (t *table) awaitRoom(ctx context.Context) int {
	for {
		t.mu.Lock()
		n := t.space(0)
		t.readerWaits = n == 0
		t.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return 0
		}
	}
}

// offer tells a waiting reader that there is room. The caller holds the lock.
func (t *table) offer() {
	if t.readerWaits && t.space(0) > 0 {
		t.readerWaits = false
		notify(t.room)
	}
}

// space is how many entries to read now, beside some that are coming. The caller holds the lock.
func (t *table) space(coming int) int {
	n := min(t.limit(coming)-t.queue.len()-t.solo.len()-coming, MaxHeld-len(t.held)-coming, readMost)
	return max(n, 0)
}

// limit is how many entries may be queued. The caller holds the lock.
func (t *table) limit(coming int) int {
	switch {
	case t.closed || t.exclusive:
		return 0
	case t.outages > 0:
		return 1 // one that has not met the outage, to probe with; those that have stand in tried
	}
	workers, each := t.cfg.Concurrency, 1
	if t.cfg.HandleBatch != nil {
		each = t.cfg.BatchSize
	}
	free, ahead := (workers-t.busy)*each, 0
	if t.cost > 0 {
		most := max(aheadMost, 2*each*workers)
		ahead = min(int(lookahead/t.cost)*workers, most)
		if each > 1 && time.Duration(each)*t.cost <= quickBatch {
			ahead = most
		}
	}
	if t.busy >= workers && time.Since(t.lastRun) > 5*lookahead {
		ahead = 0 // all workers are at slow ones: what is read now would only be given back
	}
	if (t.queue.len()+coming)*2 > ahead {
		ahead = 0 // refill when half is gone: a few large reads rather than many small ones
	}
	return free + ahead
}

// forget drops entries that were acknowledged, buried or lost.
func (t *table) forget(entries ...*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		t.drop(e)
	}
	t.offer()
}

// drop takes an entry out of the table. The caller holds the lock.
func (t *table) drop(e *entry) {
	if t.held[e.EntryID] == e {
		delete(t.held, e.EntryID)
	}
	if len(t.held) == 0 {
		// Nothing is put off any more, nor kept from running by an outage.
		t.stalled, t.outage, t.outages, t.pausedUntil = time.Time{}, nil, 0, time.Time{}
	}
}

// close lets no run start any more and wakes the workers, which end.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.work.Broadcast()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
