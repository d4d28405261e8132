package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/wneessen/go-mail"

	"example.com/orderfanout/event"
)

// message is a mail that is ready to be sent.
type message struct {
	from, to mailbox
	// content is headers and body.
	content []byte
}

// newMessage writes the confirmation of an order. Its Message-ID depends on the event and the sender's domain alone, so that
// every copy of the mail has the same one and a mail program can show it once.
func newMessage(from mailbox, eventID string, o event.OrderPlaced, now time.Time) (*message, error) {
	if eventID == "" || len(eventID) > 128 {
		return nil, errors.New("the event's id has not 1 to 128 bytes")
	}
	to, err := parseMailbox(o.Email)
	if err != nil {
		return nil, fmt.Errorf("email: %w", err)
	}
	to.name = "" // an order has none; what stands there is not ours to pass on

	m := mail.NewMsg(mail.WithNoDefaultUserAgent())
	m.FromMailAddress(from.header())
	m.ToMailAddress(to.header())
	m.Subject("Your order – " + money(o.Total, o.Currency))
	m.SetMessageIDWithValue(url.QueryEscape(eventID) + "@" + from.domain)
	m.SetDateWithValue(now)
	m.SetGenHeader("Auto-Submitted", "auto-generated") // no "out of office", please (RFC 3834)

	view := newOrderView(o)
	m.SetBodyString(mail.TypeTextPlain, view.text())
	m.AddAlternativeString(mail.TypeTextHTML, view.html())
	var content bytes.Buffer
	if _, err := m.WriteTo(&content); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return &message{from: from, to: to, content: content.Bytes()}, nil
}

// orderView is an order as the mail shows it.
type orderView struct {
	ID, Total, Placed string
	Items             []itemView
}

type itemView struct {
	SKU        string
	Quantity   int64
	Price, Sum string
}

func newOrderView(o event.OrderPlaced) orderView {
	v := orderView{
		ID:     o.ID,
		Total:  money(o.Total, o.Currency),
		Placed: o.CreatedAt.UTC().Format("2 January 2006, 15:04 UTC"),
	}
	for _, item := range o.Items {
		v.Items = append(v.Items, itemView{
			SKU:      item.SKU,
			Quantity: item.Quantity,
			Price:    money(item.UnitPrice, o.Currency),
			Sum:      money(item.Quantity*item.UnitPrice, o.Currency),
		})
	}
	return v
}
