package broker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/orderfanout/broker"
)

var (
	errMalformed = errors.New("no address")
	errRefused   = errors.New("connection refused")
	errLocked    = errors.New("somebody else is at it")
)

func printLabel(d *broker.Delivery) error {
	return map[string]error{"a": nil, "b": errMalformed, "c": errRefused, "d": errLocked}[d.ID]
}

// A handler's error is its verdict.
func ExampleHandler() {
	var handle broker.Handler = func(ctx context.Context, d *broker.Delivery) error {
		err := printLabel(d)
		switch {
		case errors.Is(err, errMalformed): // no retry can mend it
			return broker.Permanent(err)
		case errors.Is(err, errRefused): // the printer is down, the event is not to blame
			return broker.Unavailable(err)
		case errors.Is(err, errLocked): // not now
			return broker.Defer(100 * time.Millisecond)
		}
		return err // nil: done; anything else: try again later
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		fmt.Println(id, handle(context.Background(), &broker.Delivery{Event: broker.Event{ID: id}}))
	}
	// Output:
	// a <nil>
	// b permanent: no address
	// c unavailable: connection refused
	// d deferred for 100ms
}

// A batch handler can give one delivery a verdict of its own.
func ExampleDelivery_Reject() {
	var handle broker.BatchHandler = func(_ context.Context, ds []*broker.Delivery) error {
		for _, d := range ds {
			if len(d.Data) == 0 {
				d.Reject(broker.Permanent(errMalformed))
			}
		}
		return nil // the verdict on the others
	}
	good := &broker.Delivery{Event: broker.Event{ID: "good", Data: []byte("{}")}}
	bad := &broker.Delivery{Event: broker.Event{ID: "bad"}}
	err := handle(context.Background(), []*broker.Delivery{good, bad})
	fmt.Println(err, good.Verdict(), bad.Verdict())
	// Output: <nil> <nil> permanent: no address
}
