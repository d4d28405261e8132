// Package crash ends the process at named points of its work, as kill -9 would, so that people and tests can see what
// becomes of the work. docs/crash-points.md says for each point what is where at that moment and who repairs it.
package crash

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The points, in the order in which an event passes them.
const (
	OrderCommitted = "order.committed" // the order and its outbox row are committed, the client has no answer, the relay is not woken
	RelayTook      = "relay.took"      // the relay has the lease and a batch, and has published none of it
	RelayPublished = "relay.published" // the batch is in the stream, its rows are not marked, the lease is held
	RelayMarked    = "relay.marked"    // the batch is published and marked

	EntryClaimed = "entry.claimed" // taken over from another consumer or an earlier life, not begun
	EntryRead    = "entry.read"    // the handler is about to run
	EntryHandled = "entry.handled" // the handler returned nil, nothing is acknowledged
	EntryAcked   = "entry.acked"   // acknowledged
	EntryFailed  = "entry.failed"  // the handler returned an error, which is not written down
	EntryWaits   = "entry.waits"   // the failure is written down, the entry waits for its next attempt
	EntryBuries  = "entry.buries"  // about to go to the dead letters
	EntryBuried  = "entry.buried"  // in the dead letters and acknowledged; both are one script, so there is no point between them

	BonusInserted  = "bonus.inserted"  // marker, ledger and account are written, the transaction is not committed
	BonusCommitted = "bonus.committed" // it is committed
	MailMarked     = "mail.marked"     // the marker says "sending", no mail has gone out
	MailAccepted   = "mail.accepted"   // the server has said 250, the marker still says "sending"
	MailSent       = "mail.sent"       // the marker says "sent"
	SumsAdding     = "sums.adding"     // about to run analytics' script, which marks and adds in one
	SumsAdded      = "sums.added"      // the script has run
)

// Points are all points.
var Points = []string{
	OrderCommitted, RelayTook, RelayPublished, RelayMarked,
	EntryClaimed, EntryRead, EntryHandled, EntryAcked, EntryFailed, EntryWaits, EntryBuries, EntryBuried,
	BonusInserted, BonusCommitted, MailMarked, MailAccepted, MailSent, SumsAdding, SumsAdded,
}

// plan is where to crash.
type plan struct {
	point string
	left  atomic.Int64 // passages before it, that one included
}

// armed is nil but where Arm was called. It is written before anything runs beside it.
var armed *plan

// Arm makes At end the process when it passes a point for the n-th time: "point" or "point:n". It is called once, before
// anything else runs; "" arms nothing.
func Arm(spec string) error {
	if spec == "" {
		return nil
	}
	point, times, counted := strings.Cut(spec, ":")
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(times, 10, 64); err != nil || n < 1 {
			return fmt.Errorf("CRASH_AT: %q is not a number of at least 1", times)
		}
	}
	if !slices.Contains(Points, point) {
		return fmt.Errorf("CRASH_AT: there is no point %q; the points are %s", point, strings.Join(Points, ", "))
	}
	armed = &plan{point: point}
	armed.left.Store(n)
	return nil
}

// Armed reports whether the process is to end at the point, now or later.
func Armed(point string) bool { return armed != nil && armed.point == point }

// At passes a point.
func At(point string) {
	if armed != nil {
		armed.pass(point)
	}
}

// die ends the process with no deferred work and no last words of the runtime. Tests replace it.
var die = func() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}

func (p *plan) pass(point string) {
	if p.point == point && p.left.Add(-1) == 0 {
		fmt.Fprintln(os.Stderr, "CRASH_AT: ending at", point)
		die()
	}
}
