package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/crash"
)

// heldWait is how long an entry waits whose event another entry's worker is sending just now. Should that worker be dead,
// its entry is taken over by somebody, or its marker ends.
const heldWait = 2 * time.Second

// handler sends the mail of one event at a time.
type handler struct {
	markers *markers
	sender  *sender
	from    mailbox
}

// handle is a [broker.Handler].
func (h *handler) handle(ctx context.Context, d *broker.Delivery) error {
	order, err := event.DecodeOrderPlaced(d.Data)
	if err != nil {
		return broker.Permanent(err)
	}
	m, err := newMessage(h.from, d.ID, order, time.Now())
	if err != nil {
		return broker.Permanent(fmt.Errorf("write mail for order %.64q: %w", order.ID, err))
	}

	found, err := h.markers.Begin(ctx, d)
	if err == nil && d.OnlyGroup != "" && strings.HasPrefix(found, sending("")) {
		var ours bool
		if ours, err = h.markers.TakeOver(ctx, d, found); ours {
			found = ""
		}
	}
	switch {
	case err != nil:
		return err
	case found == sent:
		d.Duplicate()
		return nil
	case strings.HasPrefix(found, sending("")):
		return broker.Defer(heldWait)
	case found != "":
		return fmt.Errorf("marker of %s is %.64q, which nobody of us wrote", d.ID, found)
	}

	crash.At(crash.MailMarked)
	switch err := h.sender.Send(ctx, m); {
	case err == nil:
		crash.At(crash.MailAccepted)
		if err := h.markers.Finish(ctx, d); err != nil {
			return err
		}
		crash.At(crash.MailSent)
		return nil
	case errors.Is(err, errUnknown):
		// The mail may be on its way. The marker stays, so that no other entry of this event sends it beside our retry.
		return fmt.Errorf("send mail for order %s: %w", order.ID, err)
	default:
		// A cancelled handler may have lost its entry, and then the marker, which names the entry, is the new owner's.
		if ctx.Err() == nil {
			h.markers.Release(ctx, d)
		}
		return fmt.Errorf("send mail for order %s: %w", order.ID, err)
	}
}
