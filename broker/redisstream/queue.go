package redisstream

import (
	"container/heap"
	"context"
	"time"
)

// queue is a first-in-first-out list of entries.
type queue struct {
	items []*entry
	head  int
}

func (q *queue) len() int      { return len(q.items) - q.head }
func (q *queue) first() *entry { return q.items[q.head] }

func (q *queue) push(e *entry) {
	if q.head > 0 && len(q.items) == cap(q.items) { // use the room at the front before growing
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, e)
}

func (q *queue) pop() *entry {
	e := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return e
}

// drop takes entries off the front that were lost while they stood in the queue.
func (q *queue) drop() {
	for q.len() > 0 && q.first().lost {
		q.pop()
	}
}

// take empties the queue.
func (q *queue) take() []*entry {
	var all []*entry
	for q.len() > 0 {
		if e := q.pop(); !e.lost {
			all = append(all, e)
		}
	}
	return all
}

// dueHeap orders waiting entries by their due time.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*entry)) }
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

// clock queues waiting entries when they are due and ends pauses, until ctx is done.
func (t *table) clock(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(t.wake(time.Now()))
		select {
		case <-timer.C:
		case <-t.tick:
		case <-ctx.Done():
			return
		}
	}
}

// wake does what is due and returns the time until something is due again.
func (t *table) wake(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.waiting) > 0 && !t.waiting[0].due.After(now) {
		if e := heap.Pop(&t.waiting).(*entry); !e.lost {
			t.ready(e)
		}
	}
	next := time.Hour
	if len(t.waiting) > 0 {
		next = t.waiting[0].due.Sub(now)
	}
	if !t.pausedUntil.IsZero() {
		if left := t.pausedUntil.Sub(now); left > 0 {
			return min(next, left)
		}
		t.pausedUntil = time.Time{}
		t.work.Broadcast()
		t.offer()
	}
	return next
}
