package broker

import "context"

// Handler does the work for one delivery. Its result is the verdict:
//
//   - nil acknowledges the entry;
//   - [Permanent] sends it to the dead letters at once;
//   - [Defer] puts it off and counts nothing;
//   - [Unavailable] says that a dependency is down: the consumer pauses and nothing is counted;
//   - any other error counts as a failure: the entry is tried again after a growing delay, and goes to the
//     dead letters after its last attempt.
//
// A panic counts as a failure. The context is cancelled when the handler outlives its time-out and when the
// entry is lost to another consumer; a handler that returns nil all the same has done the work, and its entry
// is acknowledged.
//
// Deliveries are at least once: the handler must do nothing when it has done the work of this Event.ID before,
// and should then call [Delivery.Duplicate].
type Handler func(ctx context.Context, d *Delivery) error

// BatchHandler does the work for several deliveries, as a rule in one transaction. Its result is the verdict on
// all of them, except those that it gave a verdict of their own with [Delivery.Reject]. Where it returns an error
// other than [Unavailable] and [Defer], none is counted: the deliveries are run again one by one, so that only
// the bad one fails. Such an error is logged once a minute.
type BatchHandler func(ctx context.Context, ds []*Delivery) error

// Delivery is one event on its way to one consumer group.
type Delivery struct {
	Event
	// EntryID is the broker's own id of the entry. It differs between two deliveries of one event that was
	// published twice, so never deduplicate by it.
	EntryID string
	// Attempt counts from 1: one more than the failures counted so far.
	Attempt int
	// Delivery counts from 1: one more than the workers that were lost while they had the entry.
	Delivery int

	duplicate bool
	verdict   error
}

// Duplicate notes that this event's work was found done before. It only changes the outcome that is logged and
// counted, from "done" to "duplicate".
func (d *Delivery) Duplicate() { d.duplicate = true }

// Hand is called by the engine before each run: it sets the counts and clears what the last run noted.
func (d *Delivery) Hand(attempt, delivery int) {
	d.Attempt, d.Delivery, d.duplicate, d.verdict = attempt, delivery, false, nil
}

// IsDuplicate reports whether Duplicate was called since the delivery was last handed out.
func (d *Delivery) IsDuplicate() bool { return d.duplicate }

// Reject gives this delivery of a batch a verdict of its own, which stands where the handler returns nil.
// A nil err takes it back.
func (d *Delivery) Reject(err error) { d.verdict = err }

// Verdict returns what Reject was last given.
func (d *Delivery) Verdict() error { return d.verdict }

// Outcome says how one delivery ended, in logs and metrics.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"      // the handler returned nil; its acknowledgement is on its way
	Duplicate Outcome = "duplicate" // as Done, and the handler found the work done before
	Retried   Outcome = "retry"     // failed; will be tried again
	Deferred  Outcome = "deferred"  // put off, or a dependency is down; not counted
	Dead      Outcome = "dead"      // moved to the dead letters
	Skipped   Outcome = "skipped"   // not for this handler; acknowledged unseen
	Lost      Outcome = "lost"      // its body is gone from the stream, or another consumer owns it now
)
