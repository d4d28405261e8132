package redisstream

import (
	"context"
	"time"

	"example.com/orderfanout/broker"
)

// state says where an entry that this consumer holds is.
type state uint8

const (
	queued  state = iota // ready for a worker
	waiting              // put off until due
	running              // in a handler
	acking               // its work is done; the XACK is on its way
	stuck                // its handler ignored the cancel: no longer renewed, not run again here
)

// entry is one pending entry that this consumer owns. Its fields are guarded by the table's lock, except in the hands of
// the worker that runs it.
type entry struct {
	broker.Delivery
	raw  string  // its names and values, an array in RESP as it was read
	bury *burial // set: goes to the dead letters without another run

	state    state
	epoch    uint64    // of the group when it was read
	renewed  time.Time // when its ownership was last seen
	due      time.Time // while waiting
	began    time.Time // while running
	run      *run      // the last that it was in
	cancel   context.CancelCauseFunc
	lost     bool // another consumer owns it
	replaced bool // a new stream has another entry of its id: never acknowledge this one
	single   bool // keep it out of batches
	failed   bool // has a field in the fail hash
	failures int

	deliveries int  // as the server counts
	started    bool // the server's count includes this consumer's run

	unavailable   int    // times it met a dependency that was down while others succeeded
	successBefore uint64 // the table's successes at the last of them
}

// run is one call of a handler.
type run struct{ hopeless bool }

// burial is why an entry goes to the dead letters.
type burial struct{ reason, err string }

// The reasons in dead_reason.
const (
	deadMalformed  = "malformed"
	deadPermanent  = "permanent"
	deadAttempts   = "max_attempts"
	deadDeliveries = "max_deliveries"
)

// newEntry decodes an entry. One without an id or a type is made ready for the dead letters.
func newEntry(id, raw string) *entry {
	e := &entry{raw: raw, deliveries: 1, started: true}
	e.EntryID = id
	r := reply{raw}
	n, _ := r.array()
	for i := 0; i+1 < n; i += 2 {
		name, _ := r.text()
		value, _ := r.text()
		setField(&e.Event, name, value)
	}
	switch {
	case n%2 != 0 && n > 0:
		e.bury = &burial{deadMalformed, "odd number of names and values"}
	case e.ID == "":
		e.bury = &burial{deadMalformed, "no id"}
	case e.Type == "":
		e.bury = &burial{deadMalformed, "no type"}
	}
	return e
}

// fields are the entry's names and values.
func (e *entry) fields() []string {
	r := reply{e.raw}
	n, _ := r.array()
	fields := make([]string, max(n, 0))
	for i := range fields {
		fields[i], _ = r.text()
	}
	return fields
}

// delivery is the number of the delivery that a run of it is.
func (e *entry) delivery() int {
	if e.started {
		return e.deliveries
	}
	return e.deliveries + 1
}

// alone reports whether the entry must be run with nothing beside it: two workers were lost on it.
func (e *entry) alone() bool { return e.delivery() >= 3 }

// The names of an entry's fields: CloudEvents attributes
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#context-attributes) and extensions.
const (
	fieldSpecVersion     = "specversion"
	fieldID              = "id"
	fieldSource          = "source"
	fieldType            = "type"
	fieldTime            = "time"
	fieldSubject         = "subject"
	fieldPartitionKey    = "partitionkey"
	fieldDataContentType = "datacontenttype"
	fieldDataSchema      = "dataschema"
	fieldTraceParent     = "traceparent"
	fieldOnlyGroup       = "onlygroup"
	fieldData            = "data"
)

// decode reads the fields that it knows. Where a name comes twice, the last stands.
func decode(fields []string) (ev broker.Event) {
	for i := 0; i+1 < len(fields); i += 2 {
		setField(&ev, fields[i], fields[i+1])
	}
	return ev
}

func setField(ev *broker.Event, name, value string) {
	switch name {
	case fieldID:
		ev.ID = value
	case fieldSource:
		ev.Source = value
	case fieldType:
		ev.Type = value
	case fieldTime:
		if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
			ev.Time = t.UTC()
		}
	case fieldSubject:
		ev.Subject = value
	case fieldPartitionKey:
		ev.PartitionKey = value
	case fieldDataContentType:
		ev.DataContentType = value
	case fieldDataSchema:
		ev.DataSchema = value
	case fieldTraceParent:
		ev.TraceParent = value
	case fieldOnlyGroup:
		ev.OnlyGroup = value
	case fieldData:
		ev.Data = []byte(value)
	}
}

// xadd returns the command that appends ev to stream: the attributes that are set, as CloudEvents asks, and the data. Texts are
// pointers into ev, since a string in an interface is an allocation.
func xadd(stream any, ev *broker.Event) []any {
	args := append(make([]any, 0, 27), "XADD", stream, "*", fieldSpecVersion, "1.0")
	args = appendText(args, fieldID, &ev.ID)
	args = appendText(args, fieldSource, &ev.Source)
	args = appendText(args, fieldType, &ev.Type)
	if !ev.Time.IsZero() {
		args = append(args, fieldTime, ev.Time.UTC().Format(time.RFC3339Nano))
	}
	args = appendText(args, fieldSubject, &ev.Subject)
	args = appendText(args, fieldPartitionKey, &ev.PartitionKey)
	args = appendText(args, fieldDataContentType, &ev.DataContentType)
	args = appendText(args, fieldDataSchema, &ev.DataSchema)
	args = appendText(args, fieldTraceParent, &ev.TraceParent)
	args = appendText(args, fieldOnlyGroup, &ev.OnlyGroup)
	return append(args, fieldData, ev.Data)
}

func appendText(args []any, name any, value *string) []any {
	if *value == "" {
		return args
	}
	return append(args, name, value)
}
