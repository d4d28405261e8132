// Package brokertest holds a broker to the contract of package broker. Every broker's tests call [Run] with a real
// server; what only one kind of broker can do is tested beside it.
package brokertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/orderfanout/broker"
)

// Broker is one broker on a server of the test's own, with an empty log.
type Broker interface {
	broker.Publisher
	// Consume starts a consumer. It is stopped by stop, which drains it and waits for its end, and by the end of the test.
	Consume(t testing.TB, c Consumer) (stop func())
	// Strand has a consumer of the group take up to n entries that it never finishes, as one that was killed does, and
	// returns how many it took. The group exists already.
	Strand(t testing.TB, group string, n int) int
	// Pending is how many entries the group was given and has not finished, and Waiting how many it was not given yet, -1 while
	// there is no such group.
	Pending(t testing.TB, group string) int
	Waiting(t testing.TB, group string) int
	// Dead returns the dead letters of the group, oldest first.
	Dead(t testing.TB, group string) []DeadLetter
	// PublishRaw appends an entry that is no event: the fields as they are.
	PublishRaw(t testing.TB, fields ...string)
}

// Consumer says what to start. Names, times and limits are the broker's to pass on.
type Consumer struct {
	Group, Name string
	Types       []string
	Handle      broker.Handler
	HandleBatch broker.BatchHandler
	BatchSize   int
	Concurrency int

	// HandlerTimeout, MaxAttempts and MaxDeliveries where not zero; otherwise 5 s, 3 and 20.
	HandlerTimeout             time.Duration
	MaxAttempts, MaxDeliveries int
	// Observe as the broker's Config has it.
	Observe func(d *broker.Delivery, outcome broker.Outcome, took time.Duration)
}

// DeadLetter is an entry that failed for good.
type DeadLetter struct {
	Event    broker.Event
	Fields   map[string]string // as they stood in the entry
	Reason   string
	Error    string
	Attempts int
	EntryID  string
}

// Run runs the suite. start returns a new broker for each test; its consumers should retry within some 50 ms and take
// lost workers' entries over within about a second.
func Run(t *testing.T, start func(t testing.TB) Broker) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b Broker)
	}{
		{"EveryGroupGetsEveryEvent", everyGroup},
		{"EventArrivesUnchanged", unchanged},
		{"PublishKeepsTheOrder", publishOrder},
		{"PublishRefusesWhatNobodyCouldConsume", publishRefuses},
		{"FailureIsRetriedAndCounted", retried},
		{"FailingEntryDelaysNobody", delaysNobody},
		{"LastAttemptGoesToTheDeadLetters", lastAttempt},
		{"PermanentGoesToTheDeadLettersAtOnce", permanent},
		{"PanicIsAFailure", panics},
		{"DeferCountsNothing", deferred},
		{"OutageCountsNothing", outage},
		{"OutageOfOneEntryIsItsOwnFault", strikes},
		{"BadEntryOfABatchFailsAlone", badInBatch},
		{"BatchVerdictsOneByOne", rejected},
		{"BatchOutageCountsNothing", batchOutage},
		{"DuplicateIsAnOutcome", duplicate},
		{"OtherTypesAreSkipped", skipped},
		{"OtherGroupsEventIsSkipped", onlyGroup},
		{"MalformedEntryStopsNothing", malformed},
		{"HandlerTimeoutIsAFailure", timeout},
		{"ConcurrencyIsTheLimit", concurrency},
		{"LostWorkersEntriesAreTakenOver", takenOver},
		{"OwnEntriesComeBackAtOnce", ownFirst},
		{"CrashLoopEndsInTheDeadLetters", crashLoop},
		{"DrainFinishesWhatRuns", drain},
		{"DrainReleasesTheRest", release},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, start(t))
		})
	}
}

// suite helpers

// Eventually waits for ok, 20 s at most.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// publish appends n events and returns their ids.
func publish(t testing.TB, b Broker, n int) []string {
	t.Helper()
	events := make([]broker.Event, n)
	ids := make([]string, n)
	for i := range events {
		events[i] = newEvent(i)
		ids[i] = events[i].ID
	}
	if _, err := b.Publish(context.Background(), events, broker.Position{}); err != nil {
		t.Fatal(err)
	}
	return ids
}

func newEvent(i int) broker.Event {
	return broker.Event{ID: fmt.Sprintf("event-%d", i), Source: "/test", Type: "thing.done.v1", Time: time.Now().UTC(), Subject: fmt.Sprint(i), Data: []byte("{}")}
}

// settled waits until the group has finished everything.
func settled(t testing.TB, b Broker, group string) {
	t.Helper()
	Eventually(t, "nothing is waiting or pending", func() bool { return b.Waiting(t, group) == 0 && b.Pending(t, group) == 0 })
}

// log notes what handlers were given.
type log struct {
	mu   sync.Mutex
	runs []broker.Delivery
}

func (l *log) add(d *broker.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, *d)
}

// of returns the runs of one event.
func (l *log) of(id string) []broker.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var runs []broker.Delivery
	for _, d := range l.runs {
		if d.ID == id {
			runs = append(runs, d)
		}
	}
	return runs
}

// ids returns the ids of all runs, sorted.
func (l *log) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, d := range l.runs {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// once checks that each event was run exactly once.
func (l *log) once(t testing.TB, want []string) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	if got := l.ids(); !slices.Equal(got, want) {
		t.Errorf("%d runs of %d events: got %v, want each of %v once", len(got), len(want), got, want)
	}
}

// outcomes counts the outcomes by event.
type outcomes struct {
	mu   sync.Mutex
	seen map[string][]broker.Outcome
}

func (o *outcomes) observe(d *broker.Delivery, outcome broker.Outcome, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[string][]broker.Outcome{}
	}
	o.seen[d.ID] = append(o.seen[d.ID], outcome)
}

func (o *outcomes) of(id string) []broker.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen[id])
}
