package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/event"
)

// sale is one event to be counted.
type sale struct {
	// id is the event's id in its usual form.
	id string
	// made is the day, in UTC, on which the id was made: it stands in the id itself, so the marker is found without
	// looking through every day.
	made time.Time
	// order is what is counted.
	order event.OrderPlaced
	// day is the day of the order, in UTC.
	day string
	// deliveries are those of this event in the batch, as a rule one. The others are duplicates.
	deliveries []*broker.Delivery
}

// newSale reads a delivery. Every error is for good: the event can never be counted.
func newSale(d *broker.Delivery) (*sale, error) {
	// Parse takes other forms, too, such as the one with braces.
	id, err := uuid.Parse(d.ID)
	if err != nil || len(d.ID) != 36 || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return nil, fmt.Errorf("event id %.64q is no UUIDv7, so nobody knows where its marker would be", d.ID)
	}
	order, err := event.DecodeOrderPlaced(d.Data)
	if err != nil {
		return nil, err
	}
	if err := countable(order); err != nil {
		return nil, fmt.Errorf("order %.64q: %w", order.ID, err)
	}
	made := time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
	return &sale{
		id:         id.String(),
		made:       made.Truncate(24 * time.Hour),
		order:      order,
		day:        order.CreatedAt.UTC().Format(time.DateOnly),
		deliveries: []*broker.Delivery{d},
	}, nil
}

// countable holds an order to the API's limits on what becomes a name in our sums.
func countable(o event.OrderPlaced) error {
	if len(o.Currency) != 3 {
		return errors.New("the currency is no ISO 4217 code")
	}
	for _, c := range []byte(o.Currency) {
		if c < 'A' || c > 'Z' {
			return errors.New("the currency is no ISO 4217 code")
		}
	}
	if len(o.CustomerID) > 64 {
		return errors.New("the customer_id is over 64 bytes")
	}
	for i, item := range o.Items {
		if len(item.SKU) > 64 {
			return fmt.Errorf("items[%d]: the sku is over 64 bytes", i)
		}
	}
	if y := o.CreatedAt.UTC().Year(); y < 1 || y > 9999 {
		return errors.New("created_at is in no year of four digits")
	}
	return nil
}
