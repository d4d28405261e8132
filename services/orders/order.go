package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/ops"
)

// placement is an order on its way into the database, with all that is stored with it. Its ids are made once: placed
// again, it is the same order and the same event.
type placement struct {
	id          uuid.UUID
	order       event.OrderPlaced
	data        []byte // the order as JSON: the event's data, and the answer to the client
	eventID     string
	traceParent string
	key         string // Idempotency-Key, "" where there is none
	hash        []byte // of the request, where there is a key
}

// newPlacement makes the order that the request asks for.
func newPlacement(ctx context.Context, req *orderRequest, key string) (*placement, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an order id: %w", err)
	}
	eventID, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an event id for order %s: %w", id, err)
	}
	p := &placement{
		id: id,
		order: event.OrderPlaced{
			ID:         id.String(),
			CustomerID: req.CustomerID,
			Email:      req.Email,
			Currency:   req.Currency,
			Items:      req.Items,
			Total:      req.total(),
			Status:     "placed",
			// Postgres keeps microseconds. With more, the order would read otherwise after it was stored.
			CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
		},
		eventID:     eventID.String(),
		traceParent: ops.TraceParent(ctx),
		key:         key,
	}
	if p.data, err = p.order.Encode(); err != nil {
		return nil, err
	}
	if key != "" {
		if p.hash, err = req.hash(); err != nil {
			return nil, fmt.Errorf("hash the request for order %s: %w", id, err)
		}
	}
	return p, nil
}

// hash tells equal requests from different ones. It is made from what was decoded, so white space, the order of fields and
// the spelling of characters do not count.
func (o *orderRequest) hash() ([]byte, error) {
	canonical, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	return sum[:], nil
}
