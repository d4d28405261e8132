package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
)

// pointWorth is how many minor units of an order's total make a point.
const pointWorth = 100

// maxName is the longest event id and customer id in bytes: Postgres cannot index texts of any length.
const maxName = 255

// credit is what one event adds to an account.
type credit struct {
	eventID    string
	orderID    string // a UUID
	customerID string
	points     int64
}

// newCredit reads a placed order. Its error means that the event cannot be credited, now or later.
func newCredit(ev broker.Event) (credit, error) {
	order, err := event.DecodeOrderPlaced(ev.Data)
	if err != nil {
		return credit{}, err
	}
	var id pgtype.UUID
	if err := id.Scan(order.ID); err != nil {
		return credit{}, fmt.Errorf("order id %.64q is not a UUID", order.ID)
	}
	if !isName(ev.ID) {
		return credit{}, fmt.Errorf("event id %.64q is not 1 to %d bytes of text", ev.ID, maxName)
	}
	if !isName(order.CustomerID) {
		return credit{}, fmt.Errorf("customer id %.64q is not 1 to %d bytes of text", order.CustomerID, maxName)
	}
	return credit{
		eventID:    ev.ID,
		orderID:    id.String(),
		customerID: order.CustomerID,
		points:     order.Total / pointWorth,
	}, nil
}

// isName reports whether s can be kept as a text.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
