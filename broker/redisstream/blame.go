package redisstream

import (
	"time"

	"example.com/orderfanout/broker"
)

// outageStrikes is how often an entry may meet an outage while others succeed before it is counted as failed.
const outageStrikes = 3

// requeue puts entries back as next to run.
func (t *table) requeue(entries []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		t.ready(e)
	}
}

// wait lets an entry wait for d.
func (t *table) wait(e *entry, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !e.lost {
		e.due = time.Now().Add(d)
		t.putOff(e)
	}
}

// stalls notes that work was put off.
func (t *table) stalls() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled.IsZero() {
		t.stalled = time.Now()
	}
}

// begun notes that the coming delivery of the entries is written down.
func (t *table) begun(entries []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		e.deliveries, e.started = e.Delivery.Delivery, true
	}
}

// running notes how to cancel a run. An entry that was lost since it was picked cancels at once.
func (t *table) running(batch []*entry, cancel func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range batch {
		e.cancel = cancel
		if e.lost {
			cancel(errLost)
		}
	}
}

// succeeded notes n entries done, and with 0 that a handler's dependency answered at all: an outage is over.
func (t *table) succeeded(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.successes += uint64(n)
	t.stalled = time.Time{}
	if t.outages > 0 {
		t.outages, t.pausedUntil, t.outage = 0, time.Time{}, nil
		for _, e := range t.tried.take() {
			t.ready(e)
		}
		t.work.Broadcast()
		t.offer()
	}
}

// unavailable pauses the table and queues the entries again behind the others, so that another one probes next. It
// returns those that have struck out; they are not queued.
func (t *table) unavailable(entries []*entry, err error) (guilty []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.pausedUntil) { // those that ran side by side count as one
		if t.outages++; t.outages == 1 {
			for _, e := range t.queue.take() {
				t.ready(e) // those that met an outage before stand back
			}
		}
		t.pausedUntil = now.Add(pause(t.outages + 1))
	}
	t.outage = err
	for _, e := range entries {
		if e.lost {
			continue
		}
		e.single = e.single || len(entries) > 1
		if e.unavailable == 0 || t.successes != e.successBefore {
			e.unavailable++
		}
		e.successBefore = t.successes
		if e.unavailable >= outageStrikes {
			e.unavailable = 0
			guilty = append(guilty, e)
			continue
		}
		t.ready(e)
	}
	notify(t.tick)
	return guilty
}

func (t *table) isLost(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.lost
}

// lose marks an entry as another consumer's, cancels its run and drops it. Where that is news it returns what to report: a
// copy, since a handler may be at work on the delivery.
func (t *table) lose(e *entry) *broker.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.lost || e.state == acking {
		return nil
	}
	e.lost = true
	if e.cancel != nil {
		e.cancel(errLost)
	}
	t.drop(e)
	t.work.Broadcast() // it may be the one that all waited for
	t.offer()
	return &broker.Delivery{Event: e.Event, EntryID: e.EntryID, Attempt: e.Attempt, Delivery: e.Delivery.Delivery}
}

// hand numbers the coming run of each entry.
func (t *table) hand(batch []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range batch {
		e.Hand(e.failures+1, e.delivery())
	}
}
