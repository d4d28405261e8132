package main

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/localserver/servertest"
)

func TestPostOrder(t *testing.T) {
	t.Parallel()
	s := startService(t, map[string]string{"REDIS_URL": servertest.Redis(t).URL()})
	a := s.post(201, goodOrder)
	o := a.order(t)
	id, err := uuid.Parse(o.ID)
	if err != nil || id.Version() != 7 || a.Header.Get("Location") != "/orders/"+o.ID {
		t.Errorf("id %q, Location %q", o.ID, a.Header.Get("Location"))
	}
	want := event.OrderPlaced{ID: o.ID, CustomerID: "c-42", Email: "ada@example.com", Currency: "EUR",
		Items: []event.Item{{SKU: "tea-100", Quantity: 2, UnitPrice: 1250}}, Total: 2500, Status: "placed", CreatedAt: o.CreatedAt}
	if len(o.Items) != 1 || o.Items[0] != want.Items[0] || o.Total != 2500 || o.Status != "placed" || o.CustomerID != "c-42" || o.Email != want.Email {
		t.Errorf("got %+v, want %+v", o, want)
	}
	if o.CreatedAt.Location() != time.UTC || time.Since(o.CreatedAt).Abs() > time.Minute {
		t.Errorf("created_at %s", o.CreatedAt)
	}
	if a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("headers %v", a.Header)
	}
	s.wantRows(1)
}
