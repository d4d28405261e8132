package broker

import (
	"errors"
	"fmt"
	"time"
)

// PermanentError marks a failure that no retry can mend. Made by [Permanent].
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return "permanent: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent wraps err so that the entry goes to the dead letters at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{err}
}

// UnavailableError marks a failure of something that the handler depends on. Made by [Unavailable].
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return "unavailable: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable wraps err to say that the dependency is down and the entry is not to blame: the consumer pauses,
// with growing waits, and no attempt is counted. An entry that meets it three times while others succeed in between
// is counted as failed. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &UnavailableError{err}
}

// DeferError asks for the entry to be put off. Made by [Defer].
type DeferError struct{ After time.Duration }

func (e *DeferError) Error() string { return fmt.Sprintf("deferred for %s", e.After) }

// Defer puts the entry off by d without counting an attempt, for work that another worker holds right now.
// A d that is not positive means one second.
func Defer(d time.Duration) error {
	if d <= 0 {
		d = time.Second
	}
	return &DeferError{d}
}

// IsPermanent reports whether err is or wraps a [PermanentError].
func IsPermanent(err error) bool { _, ok := errors.AsType[*PermanentError](err); return ok }

// IsUnavailable reports whether err is or wraps an [UnavailableError].
func IsUnavailable(err error) bool { _, ok := errors.AsType[*UnavailableError](err); return ok }

// DeferredFor returns how long err asks for the entry to be put off, and whether it does.
func DeferredFor(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*DeferError](err)
	if !ok {
		return 0, false
	}
	return e.After, true
}
