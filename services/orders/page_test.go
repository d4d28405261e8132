package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"example.com/orderfanout/event"
)

func (a answer) page(t *testing.T) orderPage {
	t.Helper()
	var page orderPage
	if err := json.Unmarshal(a.body, &page); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return page
}

func TestListOrders(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	if a := s.get(200, "/orders?customer_id=nobody"); string(a.body) != `{"orders":[]}` {
		t.Errorf("no orders: %s", a.body)
	}
	var placed []event.OrderPlaced // newest first
	for n := range 7 {
		placed = append([]event.OrderPlaced{s.post(201, orderOf("c-42", n+1)).order(t)}, placed...)
		s.post(201, orderOf("c-4", n+1))
	}
	for limit := 1; limit <= 8; limit++ {
		var got []event.OrderPlaced
		for cursor, pages := "", 0; ; pages++ {
			page := s.get(200, fmt.Sprintf("/orders?customer_id=c-42&limit=%d&cursor=%s", limit, cursor)).page(t)
			got = append(got, page.Orders...)
			if len(page.Orders) > limit || len(page.Orders) == 0 || pages > 7 {
				t.Fatalf("limit %d: a page of %d orders", limit, len(page.Orders))
			}
			if page.NextCursor == "" {
				break
			}
			if strings.Contains(page.NextCursor, "-") && strings.Contains(page.NextCursor, page.Orders[len(page.Orders)-1].ID) {
				t.Errorf("the cursor %s shows an id", page.NextCursor)
			}
			if pages == 0 { // an order that comes meanwhile moves nothing
				s.post(201, orderOf("c-4", 1))
			}
			cursor = page.NextCursor
		}
		if fmt.Sprint(got) != fmt.Sprint(placed) {
			t.Errorf("limit %d: got  %v\nwant %v", limit, got, placed)
		}
	}
	if page := s.get(200, "/orders?customer_id=c-42").page(t); len(page.Orders) != 7 {
		t.Errorf("without a limit: %d orders", len(page.Orders))
	}
	if page := s.get(200, "/orders?customer_id=c-42&cursor=&limit=").page(t); len(page.Orders) != 7 {
		t.Errorf("with an empty cursor and limit: %d orders", len(page.Orders))
	}
}

func TestListOrdersRefuses(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	for query, fields := range map[string]string{
		"":                                   "customer_id",
		"?customer_id=":                      "customer_id",
		"?customer_id=a%20b":                 "customer_id",
		"?customer_id=a&customer_id=b":       "customer_id",
		"?Customer_id=a":                     "customer_id Customer_id",
		"?customer_id=a&limit=0":             "limit",
		"?customer_id=a&limit=101":           "limit",
		"?customer_id=a&limit=-1":            "limit",
		"?customer_id=a&limit=ten":           "limit",
		"?customer_id=a&limit=1.5":           "limit",
		"?customer_id=a&limit=9999999999999": "limit",
		"?customer_id=a&cursor=x":            "cursor",
		"?customer_id=a&cursor=" + strings.Repeat("A", 1000): "cursor",
		"?customer_id=a&cursor=!!":                           "cursor",
		"?customer_id=a&page=2":                              "page",
		"?limit=x&cursor=y&offset=1":                         "customer_id cursor limit offset",
		"?customer_id=%zz":                                   "",
		"?customer_id=a;limit=1":                             "",
	} {
		p := s.get(400, "/orders"+query).problem(t)
		var got []string
		for _, f := range p.Errors {
			got = append(got, f.Field)
		}
		if strings.Join(got, " ") != fields {
			t.Errorf("%s: errors %v, want %q", query, p.Errors, fields)
		}
	}
}
