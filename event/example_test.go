package event_test

import (
	"fmt"
	"log"

	"example.com/orderfanout/event"
)

// A consumer reads the order out of the event and needs to ask nobody.
func ExampleDecodeOrderPlaced() {
	data := []byte(`{"id":"01936b2e-7b1a-7c3d-9e4f-0123456789ab","customer_id":"c-42","email":"ada@example.com",
		"currency":"EUR","items":[{"sku":"tea-100","quantity":2,"unit_price":1250}],"total":2500,"status":"placed",
		"created_at":"2026-11-29T12:00:00Z","a_later_field":true}`)
	order, err := event.DecodeOrderPlaced(data)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.CustomerID, order.Total, order.Currency)
	// Output: c-42 2500 EUR
}
