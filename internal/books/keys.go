package books

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

const stream = "orders"

// Groups are the consumer groups, in the order of [Report.Groups].
var Groups = []string{mailer, bonus, analytics}

const (
	mailer    = "mailer"
	bonus     = "bonus"
	analytics = "analytics"
)

// The keys that the services keep; the services are programs, so they cannot be asked for them. A test compares.
const (
	sentPrefix = "mailer:sent:" // and the event id

	totalsKey     = "analytics:{stats}:totals"
	daysKey       = "analytics:{stats}:days"
	dayPrefix     = "analytics:{stats}:day:"     // and the order's day
	countedPrefix = "analytics:{stats}:counted:" // and the day on which the event's id was made
	revenuePrefix = "revenue:"                   // and the currency: a field
)

// failKey holds an entry's failures and next try: "failures:milliseconds since 1970".
func failKey(group string) string { return "{" + stream + "}:fail:" + group }

// entryID is a stream id in numbers.
type entryID struct{ ms, seq uint64 }

func parseEntryID(s string) entryID {
	ms, seq, _ := strings.Cut(s, "-")
	var id entryID
	id.ms, _ = strconv.ParseUint(ms, 10, 64)
	id.seq, _ = strconv.ParseUint(seq, 10, 64)
	return id
}

func (id entryID) after(other entryID) bool {
	return id.ms > other.ms || id.ms == other.ms && id.seq > other.seq
}

func (id entryID) time() time.Time { return time.UnixMilli(int64(id.ms)) }

// made is when an event's id was made, as a UUIDv7 has it; ok is false for any other id.
func made(eventID string) (t time.Time, ok bool) {
	if len(eventID) != 36 || eventID[14] != '7' || eventID[8] != '-' {
		return time.Time{}, false
	}
	var b [8]byte
	if _, err := hex.Decode(b[2:6], []byte(eventID[:8])); err != nil {
		return time.Time{}, false
	}
	if _, err := hex.Decode(b[6:], []byte(eventID[9:13])); err != nil {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))).UTC(), true
}
