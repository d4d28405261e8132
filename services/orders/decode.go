package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/problem"
)

// maxErrors is how many bad fields one answer names. An order within its limits cannot have more; a body of unknown
// fields can, and its answer should not be larger than the body.
const maxErrors = 350

// orderRequest is the body of POST /orders.
type orderRequest struct {
	CustomerID string       `json:"customer_id"`
	Email      string       `json:"email"`
	Currency   string       `json:"currency"`
	Items      []event.Item `json:"items"`
}

// total is the sum of the items in minor units. It cannot overflow: 100 items of 10,000 times 10^9 are 10^15.
func (o *orderRequest) total() int64 {
	var sum int64
	for _, item := range o.Items {
		sum += item.Quantity * item.UnitPrice
	}
	return sum
}

// decodeOrder reads and checks the body of POST /orders. It is stricter than encoding/json: names count with their
// case, none may be unknown or come twice, null is no value, and text must be valid Unicode. Every bad field is named at
// once; the problem is a 400 where one of them is malformed, and a 422 where all are well-formed but out of range.
func decodeOrder(body []byte) (*orderRequest, *problem.Problem) {
	if p := checkJSON(body); p != nil {
		return nil, p
	}
	d := &decoder{src: body, item: -1}
	o := new(orderRequest)
	d.space()
	if d.src[d.pos] != '{' {
		return nil, problem.New(http.StatusBadRequest, "the body must be one JSON object")
	}
	d.order(o)
	switch {
	case d.malformed:
		p := problem.New(http.StatusBadRequest, "the order is malformed: errors names each field")
		p.Errors = d.errs
		return nil, p
	case len(d.errs) > 0:
		p := problem.New(http.StatusUnprocessableEntity, "the order is not within its limits: errors names each field")
		p.Errors = d.errs
		return nil, p
	}
	return o, nil
}

// checkJSON says what keeps the body from being one JSON value. After it the decoder can walk without looking for
// mistakes of syntax.
func checkJSON(body []byte) *problem.Problem {
	if !utf8.Valid(body) {
		return problem.New(http.StatusBadRequest, "the body is not valid UTF-8")
	}
	if json.Valid(body) {
		return nil
	}
	if strings.TrimSpace(string(body)) == "" {
		return problem.New(http.StatusBadRequest, "the body is empty: send an order as JSON")
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(any)); errors.As(err, &syntax) {
		return problem.New(http.StatusBadRequest, "the body is not one JSON value: %s, at byte %d", syntax, syntax.Offset)
	}
	return problem.New(http.StatusBadRequest, "the body is not one JSON value")
}

// The members of an order and of an item, as bits for what was seen.
const (
	customerField = 1 << iota
	emailField
	currencyField
	itemsField
	skuField
	quantityField
	priceField
)

var orderNames = []string{"customer_id", "email", "currency", "items"}
var itemNames = []string{"sku", "quantity", "unit_price"}

func (d *decoder) order(o *orderRequest) {
	seen := 0
	d.members(func(name []byte) {
		switch string(name) {
		case "customer_id":
			if d.first(&seen, customerField, "customer_id") {
				o.CustomerID = d.text("customer_id", checkName)
			}
		case "email":
			if d.first(&seen, emailField, "email") {
				o.Email = d.text("email", checkEmail)
			}
		case "currency":
			if d.first(&seen, currencyField, "currency") {
				o.Currency = d.text("currency", checkCurrency)
			}
		case "items":
			if d.first(&seen, itemsField, "items") {
				o.Items = d.items()
			}
		default:
			d.unknown(name, orderNames)
		}
	})
	for i, name := range orderNames {
		if seen&(customerField<<i) == 0 {
			d.outOfRange(name, "is missing")
		}
	}
}

func (d *decoder) items() []event.Item {
	if d.src[d.pos] != '[' {
		d.wrongType("items", "an array")
		return nil
	}
	items := make([]event.Item, 0, 4)
	count, before := 0, len(d.errs)
	d.elements(func() {
		if count++; count > maxItems {
			d.skip()
			return
		}
		items = append(items, d.oneItem(count-1))
	})
	switch {
	case count == 0:
		d.outOfRange("items", "is empty; an order has at least one item")
	case count > maxItems:
		d.outOfRange("items", fmt.Sprintf("has %d items; at most %d", count, maxItems))
	case len(d.errs) == before:
		if total := (&orderRequest{Items: items}).total(); total > maxTotal {
			d.outOfRange("items", fmt.Sprintf("add up to %d; at most %d", total, int64(maxTotal)))
		}
	}
	return items
}

func (d *decoder) oneItem(index int) (item event.Item) {
	if d.src[d.pos] != '{' {
		d.wrongType(fmt.Sprintf("items[%d]", index), "an object")
		return item
	}
	d.item = index
	defer func() { d.item = -1 }()
	seen := 0
	d.members(func(name []byte) {
		switch string(name) {
		case "sku":
			if d.first(&seen, skuField, "sku") {
				item.SKU = d.text("sku", checkName)
			}
		case "quantity":
			if d.first(&seen, quantityField, "quantity") {
				item.Quantity = d.integer("quantity", 1, maxQuantity)
			}
		case "unit_price":
			if d.first(&seen, priceField, "unit_price") {
				item.UnitPrice = d.integer("unit_price", 0, maxPrice)
			}
		default:
			d.unknown(name, itemNames)
		}
	})
	for i, name := range itemNames {
		if seen&(skuField<<i) == 0 {
			d.outOfRange(name, "is missing")
		}
	}
	return item
}

// first reports whether the member comes for the first time. A repeated one is noted and passed over.
func (d *decoder) first(seen *int, field int, name string) bool {
	if *seen&field != 0 {
		d.fail(name, "comes more than once")
		d.skip()
		return false
	}
	*seen |= field
	return true
}

func (d *decoder) unknown(name []byte, known []string) {
	detail := "is not a field of an order"
	if d.item >= 0 {
		detail = "is not a field of an item"
	}
	for _, k := range known {
		if strings.EqualFold(k, string(name)) {
			detail = fmt.Sprintf("is not a field; it is written %q", k)
		}
	}
	d.fail(clip(string(name)), detail)
	d.skip()
}

// text reads a string and has it checked; check returns what is wrong with it, or "".
func (d *decoder) text(name string, check func(string) string) string {
	if d.src[d.pos] != '"' {
		d.wrongType(name, "a string")
		return ""
	}
	raw, ok := d.str()
	if !ok {
		d.fail(name, `has half of a surrogate pair (\ud800 to \udfff); it is not valid Unicode`)
		return ""
	}
	s := string(raw)
	if detail := check(s); detail != "" {
		d.outOfRange(name, detail)
	}
	return s
}

// integer reads a whole number. One with a fraction or an exponent is none, whatever its value: money is never a float.
func (d *decoder) integer(name string, min, max int64) int64 {
	if c := d.src[d.pos]; c != '-' && (c < '0' || c > '9') {
		d.wrongType(name, "an integer")
		return 0
	}
	start := d.pos
	d.skip()
	raw := d.src[start:d.pos]
	for _, c := range raw {
		if c == '.' || c == 'e' || c == 'E' {
			d.fail(name, "must be an integer, without a fraction or an exponent")
			return 0
		}
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < min || n > max { // the syntax is known to be good: err means too large for an int64
		d.outOfRange(name, fmt.Sprintf("must be between %d and %d", min, max))
		return 0
	}
	return n
}

func (d *decoder) wrongType(name, want string) {
	got := "a number"
	switch d.src[d.pos] {
	case '"':
		got = "a string"
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		got = "null"
	}
	d.fail(name, "must be "+want+", not "+got)
	d.skip()
}

// fail notes a field that makes the body malformed.
func (d *decoder) fail(name, detail string) {
	d.malformed = true
	d.outOfRange(name, detail)
}

// outOfRange notes a field that is well-formed but not allowed.
func (d *decoder) outOfRange(name, detail string) {
	if len(d.errs) >= maxErrors {
		return
	}
	if d.item >= 0 {
		name = fmt.Sprintf("items[%d].%s", d.item, name)
	}
	d.errs = append(d.errs, problem.Field{Field: name, Detail: detail})
}

// clip bounds a name that the client chose.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
