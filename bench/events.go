package main

import (
	"context"
	"fmt"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/event"
)

const (
	stream    = "orders"
	customers = 1000
	total     = 12_500 // of each order, in minor units: 125 points
)

// began is the time of all orders: analytics refuses what is too old.
var began = time.Now().UTC().Truncate(time.Hour)

// orderData is the i-th order as JSON, 300 bytes of it: what every contender is given for each piece of work.
func orderData(i int) []byte {
	data, err := event.OrderPlaced{
		ID: orderID(i), CustomerID: customer(i), Email: fmt.Sprintf("customer.%06d@example.com", i%customers), Currency: "EUR",
		Items: []event.Item{{SKU: fmt.Sprintf("tea-%03d", i%100), Quantity: 10, UnitPrice: total / 10}},
		Total: total, Status: "placed", CreatedAt: began,
	}.Encode()
	if err != nil {
		panic(err) // we made it
	}
	return data
}

func orderID(i int) string  { return uuidv7(i, 0x8000) }
func eventID(i int) string  { return uuidv7(i, 0x9000) }
func customer(i int) string { return fmt.Sprintf("c-%06d", i%customers) }

// uuidv7 is the i-th of a row of ids, a thousand of them made in each millisecond.
func uuidv7(i, variant int) string {
	ms := began.UnixMilli() + int64(i/1000)
	return fmt.Sprintf("%08x-%04x-7000-%04x-%012x", ms>>16, ms&0xffff, variant, i)
}

// orderEvent is the i-th order as the relay publishes it: an entry of eleven fields.
func orderEvent(i int) broker.Event {
	return broker.Event{
		ID: eventID(i), Source: "/orders", Type: event.TypeOrderPlaced, Time: began,
		Subject: orderID(i), PartitionKey: customer(i), DataContentType: "application/json",
		TraceParent: fmt.Sprintf("00-%032x-%016x-01", i+1, i+1), Data: orderData(i),
	}
}

// fillStream makes a backlog of n orders in the stream.
func fillStream(ctx context.Context, s *servers, n int) error {
	p, err := redisstream.NewPublisher(s.options(), redisstream.PublisherConfig{Stream: stream, MaxLen: 10_000_000})
	if err != nil {
		return err
	}
	defer p.Close()
	for i := 0; i < n; {
		events := make([]broker.Event, 0, 1000)
		for ; i < n && len(events) < 1000; i++ {
			events = append(events, orderEvent(i))
		}
		if _, err := p.Publish(ctx, events, broker.Position{}); err != nil {
			return err
		}
	}
	return nil
}
