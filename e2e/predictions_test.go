package e2e

import (
	"fmt"

	"example.com/orderfanout/internal/crash"
)

// predictions says for every point what a crash there leaves behind. A point without one fails TestEveryCrashPoint.
var predictions = map[string]prediction{
	crash.OrderCommitted: {services: []string{"orders"}, left: func(c *crashCase) string {
		if c.after.orders == c.before.orders {
			return "no order is stored"
		}
		return ""
	}},
	crash.RelayTook: {services: []string{"orders"}, left: func(c *crashCase) string {
		return want("unpublished rows", c.after.unpublished, 1, c.orders) + want("new entries", c.after.entries-c.before.entries, 0, 0)
	}},
	crash.RelayPublished: {services: []string{"orders"}, left: func(c *crashCase) string {
		return want("unpublished rows", c.after.unpublished, 1, c.orders) + want("new entries", c.after.entries-c.before.entries, 1, c.orders)
	}},
	crash.RelayMarked: {services: []string{"orders"}, left: func(c *crashCase) string {
		return want("unpublished rows", c.after.unpublished, 0, c.orders-1) + want("new entries", c.after.entries-c.before.entries, 1, c.orders)
	}},

	crash.EntryClaimed: {services: either, trouble: claimed, left: func(c *crashCase) string {
		return want("pending", c.after.pending, c.orders, c.orders) + c.nothingDone()
	}},
	crash.EntryRead: {services: either, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + c.nothingDone()
	}},
	crash.EntryHandled: {services: either, absorbs: true, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("done", c.done(), 1, c.orders)
	}},
	crash.EntryAcked: {services: either, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 0, c.orders-1) + want("done", c.done(), 1, c.orders)
	}},
	crash.EntryFailed: {services: either, trouble: fails, left: func(c *crashCase) string {
		return want("pending", c.after.pending, c.orders, c.orders) + want("failures", c.after.failures, 0, c.orders-1) + want("ledger rows", c.after.ledger-c.before.ledger, 0, c.orders)
	}},
	crash.EntryWaits: {services: either, trouble: fails, left: func(c *crashCase) string {
		return want("pending", c.after.pending, c.orders, c.orders) + want("failures", c.after.failures, 1, c.orders)
	}},
	crash.EntryBuries: {services: either, trouble: junk, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders+1) + want("dead letters", c.after.dead-c.before.dead, 0, 0)
	}},
	crash.EntryBuried: {services: either, trouble: junk, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 0, c.orders) + want("dead letters", c.after.dead-c.before.dead, 1, 1)
	}},

	crash.BonusInserted: {services: []string{"bonus"}, left: func(c *crashCase) string {
		return want("pending", c.after.pending, c.orders, c.orders) + c.nothingDone()
	}},
	crash.BonusCommitted: {services: []string{"bonus"}, absorbs: true, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("credits", c.done(), 1, c.orders)
	}},
	crash.MailMarked: {services: []string{"mailer"}, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("markers that say sending", c.after.sending, 1, c.orders)
	}},
	crash.MailAccepted: {services: []string{"mailer"}, repeatsMail: true, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("mails", c.done(), 1, c.orders) + want("markers that say sending", c.after.sending, 1, c.orders)
	}},
	crash.MailSent: {services: []string{"mailer"}, absorbs: true, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("mails", c.done(), 1, c.orders)
	}},
	crash.SumsAdding: {services: []string{"analytics"}, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + c.nothingDone()
	}},
	crash.SumsAdded: {services: []string{"analytics"}, absorbs: true, left: func(c *crashCase) string {
		return want("pending", c.after.pending, 1, c.orders) + want("counted", c.done(), 1, c.orders)
	}},
}

// either: mailer has a handler for one event at a time, bonus one for a batch.
var either = []string{"mailer", "bonus"}

// done is how much of the service's own work was done before the crash.
func (c *crashCase) done() int64 {
	switch c.service {
	case "mailer":
		return c.after.mails - c.before.mails
	case "bonus":
		return c.after.ledger - c.before.ledger
	default:
		return c.after.sums - c.before.sums
	}
}

func (c *crashCase) nothingDone() string { return want("done", c.done(), 0, 0) }

// want returns "" where n lies between least and most.
func want(what string, n int64, least, most int) string {
	if n >= int64(least) && n <= int64(most) {
		return ""
	}
	return fmt.Sprintf("%d %s, want %d to %d; ", n, what, least, most)
}
