package broker

import (
	"errors"
	"time"
)

// Event is one message: the attributes of a CloudEvents 1.0 event
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md) and its data.
// A broker carries it unchanged.
type Event struct {
	// ID identifies the event for ever: consumers deduplicate by it. It is made once, when the event is
	// written down, and is the same in every redelivery, redrive and republish. Required.
	ID string
	// Source names the producer, for instance "/orders".
	Source string
	// Type names what happened and the version of its data, for instance "order.placed.v1". Required.
	Type string
	// Time is when it happened, in UTC. Zero where the entry carries none or one that is not RFC 3339.
	Time time.Time
	// Subject is the id of the thing that it happened to.
	Subject string
	// PartitionKey groups events that belong together, for instance those of one customer.
	PartitionKey string
	// DataContentType is the media type of Data, for instance "application/json".
	DataContentType string
	// DataSchema is the address of the schema of Data.
	DataSchema string
	// TraceParent carries the trace of the request that caused the event
	// (https://www.w3.org/TR/trace-context/).
	TraceParent string
	// OnlyGroup, where set, makes the event work for one consumer group alone; every other group
	// acknowledges it unseen. A redrive and a republish for one group set it.
	OnlyGroup string
	// Data is the body.
	Data []byte
}

// Validate returns an error where what is required is missing: no consumer could do anything with such an event.
func (e *Event) Validate() error {
	switch {
	case e.ID == "":
		return errors.New("it has no ID")
	case e.Type == "":
		return errors.New("it has no Type")
	}
	return nil
}
