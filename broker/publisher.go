package broker

import (
	"context"
	"errors"
)

// ErrFull says that the broker takes no more for now: its log is at its limit, or its memory is nearly used up.
// The events should wait where they are.
var ErrFull = errors.New("broker is full")

// Position says how far a broker's log reached, and on which server. The zero Position knows nothing.
type Position struct {
	// Server identifies one run of the server; it changes when the server restarts or another takes over.
	Server string
	// Last is the id of the newest entry.
	Last string
}

// Receipt is a broker's acknowledgement of the events given to one Publish.
type Receipt struct {
	// EntryIDs holds the broker's id for each event, in their order.
	EntryIDs []string
	// Position is where the log ends now.
	Position Position
	// Lost reports that the server is not the one of the known Position, or that its log had gone back behind it:
	// events acknowledged shortly before may be gone and should be published again, with their own ids.
	Lost bool
}

// Publisher appends events to a broker's log.
type Publisher interface {
	// Publish appends the events in their order, all or none, and returns once the broker has acknowledged them.
	// known is the Position of the last Receipt, for the broker to compare itself with. After an error the events
	// may or may not have been appended: publish them again with the same ids. An error that is [ErrFull] says
	// that nothing was appended, and so does one about an event that is not valid ([Event.Validate]).
	//
	// Without events it appends nothing: it asks the broker where it is and compares that with known, so that a loss is
	// noticed while there is nothing to publish.
	Publish(ctx context.Context, events []Event, known Position) (Receipt, error)
}
