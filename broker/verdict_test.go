package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	wrapped := func(err error) error { return fmt.Errorf("credit: %w", err) }
	if err := wrapped(Permanent(cause)); !IsPermanent(err) || IsUnavailable(err) || !errors.Is(err, cause) {
		t.Errorf("Permanent: %v", err)
	}
	if err := wrapped(Unavailable(cause)); !IsUnavailable(err) || IsPermanent(err) || !errors.Is(err, cause) {
		t.Errorf("Unavailable: %v", err)
	}
	if d, ok := DeferredFor(wrapped(Defer(3 * time.Second))); !ok || d != 3*time.Second {
		t.Errorf("Defer: %s, %t", d, ok)
	}
	if d, ok := DeferredFor(Defer(-1)); !ok || d != time.Second {
		t.Errorf("Defer of a negative time: %s, %t; want a second", d, ok)
	}
	if Permanent(nil) != nil || Unavailable(nil) != nil {
		t.Error("a verdict on nil is not nil")
	}
	if _, ok := DeferredFor(cause); ok || IsPermanent(cause) || IsUnavailable(cause) {
		t.Error("an ordinary error has a verdict")
	}
}

func TestHandClearsWhatTheLastRunNoted(t *testing.T) {
	t.Parallel()
	var d Delivery
	d.Duplicate()
	d.Reject(errors.New("no"))
	d.Hand(2, 3)
	if d.IsDuplicate() || d.Verdict() != nil || d.Attempt != 2 || d.Delivery != 3 {
		t.Errorf("%+v", d)
	}
}
