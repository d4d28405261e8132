package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"example.com/orderfanout/event"
)

const goodOrder = `{"customer_id":"c-42","email":"ada@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":2,"unit_price":1250}]}`

// orderWith returns goodOrder with one of its parts replaced.
func orderWith(t *testing.T, old, new string) string {
	t.Helper()
	if !strings.Contains(goodOrder, old) {
		t.Fatalf("the order has no %q", old)
	}
	return strings.Replace(goodOrder, old, new, 1)
}

func TestDecodeOrderTakes(t *testing.T) {
	t.Parallel()
	good := orderRequest{CustomerID: "c-42", Email: "ada@example.com", Currency: "EUR", Items: []event.Item{{SKU: "tea-100", Quantity: 2, UnitPrice: 1250}}}
	other := func(change func(*orderRequest)) orderRequest {
		o := good
		o.Items = append([]event.Item(nil), good.Items...)
		change(&o)
		return o
	}
	hundred := strings.Repeat(`{"sku":"s","quantity":1,"unit_price":0},`, 99) + `{"sku":"s","quantity":1,"unit_price":0}`
	for name, tc := range map[string]struct {
		body string
		want orderRequest
	}{
		"as it is":     {goodOrder, good},
		"other order":  {`{"items":[{"unit_price":1250,"quantity":2,"sku":"tea-100"}],"currency":"EUR","email":"ada@example.com","customer_id":"c-42"}`, good},
		"white space":  {" \r\n\t{ \"customer_id\" :\t\"c-42\" , \"email\":\"ada@example.com\",\n\"currency\":\"EUR\",\"items\": [ { \"sku\" : \"tea-100\" , \"quantity\" : 2 , \"unit_price\" : 1250 } ] } \n", good},
		"escapes":      {`{"customer\u005fid":"c\u002d42","email":"ada\u0040example.com","currency":"\u0045UR","items":[{"sku":"tea-100","quantity":2,"unit_price":1250}]}`, good},
		"price 0":      {orderWith(t, "1250", "0"), other(func(o *orderRequest) { o.Items[0].UnitPrice = 0 })},
		"price -0":     {orderWith(t, "1250", "-0"), other(func(o *orderRequest) { o.Items[0].UnitPrice = 0 })},
		"most":         {orderWith(t, `"quantity":2,"unit_price":1250`, `"quantity":1000,"unit_price":1000000000`), other(func(o *orderRequest) { o.Items[0].Quantity, o.Items[0].UnitPrice = 1000, 1_000_000_000 })},
		"10,000":       {orderWith(t, `"quantity":2`, `"quantity":10000`), other(func(o *orderRequest) { o.Items[0].Quantity = 10_000 })},
		"IDN":          {orderWith(t, "ada@example.com", "пользователь@bücher.test"), other(func(o *orderRequest) { o.Email = "пользователь@bücher.test" })},
		"surrogates":   {orderWith(t, "ada@example.com", `\ud83d\ude00@example.com`), other(func(o *orderRequest) { o.Email = "😀@example.com" })},
		"id of 64":     {orderWith(t, "c-42", strings.Repeat("x", 64)), other(func(o *orderRequest) { o.CustomerID = strings.Repeat("x", 64) })},
		"id's letters": {orderWith(t, "c-42", "Az09._:-"), other(func(o *orderRequest) { o.CustomerID = "Az09._:-" })},
		"100 items": {orderWith(t, `{"sku":"tea-100","quantity":2,"unit_price":1250}`, hundred), other(func(o *orderRequest) {
			o.Items = make([]event.Item, 100)
			fill(o.Items, event.Item{SKU: "s", Quantity: 1})
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, p := decodeOrder([]byte(tc.body))
			if p != nil {
				t.Fatalf("refused: %v %v", p, p.Errors)
			}
			if !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", *got, tc.want)
			}
		})
	}
}

func fill(items []event.Item, with event.Item) {
	for i := range items {
		items[i] = with
	}
}

func TestDecodeOrderRefuses(t *testing.T) {
	t.Parallel()
	const item = `{"sku":"tea-100","quantity":2,"unit_price":1250}`
	for name, tc := range map[string]struct {
		body   string
		status int
		fields string // the names of the bad fields, in order
	}{
		"empty":                 {"", 400, ""},
		"white space":           {" \n", 400, ""},
		"not JSON":              {"customer_id=c-42", 400, ""},
		"cut":                   {goodOrder[:40], 400, ""},
		"byte order mark":       {"\ufeff" + goodOrder, 400, ""},
		"trailing data":         {goodOrder + goodOrder, 400, ""},
		"trailing brace":        {goodOrder + "}", 400, ""},
		"comment":               {goodOrder + " // mine", 400, ""},
		"bad UTF-8":             {orderWith(t, "ada", "\xff"), 400, ""},
		"overlong UTF-8":        {orderWith(t, "ada", "\xc0\xaf"), 400, ""},
		"bad UTF-8 in a name":   {orderWith(t, `"email"`, "\"\xff\":1,\"email\""), 400, ""},
		"NUL byte":              {orderWith(t, "ada", "\x00"), 400, ""},
		"escaped NUL":           {orderWith(t, "c-42", `c\u0000`), 422, "customer_id"},
		"array":                 {"[" + goodOrder + "]", 400, ""},
		"null":                  {"null", 400, ""},
		"text":                  {`"order"`, 400, ""},
		"deep":                  {strings.Repeat("[", 50_000), 400, ""},
		"deep in a field":       {orderWith(t, `"c-42"`, strings.Repeat("[", 5_000)+strings.Repeat("]", 5_000)), 400, "customer_id"},
		"unknown field":         {orderWith(t, `{"customer_id"`, `{"note":"x","customer_id"`), 400, "note"},
		"unknown, nested":       {orderWith(t, `{"customer_id"`, `{"note":{"a":[1,{"b":"]}\""}],"c":null},"customer_id"`), 400, "note"},
		"unknown in an item":    {orderWith(t, `{"sku"`, `{"colour":"green","sku"`), 400, "items[0].colour"},
		"what we set":           {orderWith(t, `{"customer_id"`, `{"id":"1","total":2500,"status":"placed","customer_id"`), 400, "id total status"},
		"wrong case":            {orderWith(t, `"customer_id"`, `"Customer_ID"`), 400, "Customer_ID customer_id"},
		"wrong case in an item": {orderWith(t, `"sku"`, `"SKU"`), 400, "items[0].SKU items[0].sku"},
		"repeated":              {orderWith(t, `{"customer_id"`, `{"customer_id":"c-41","customer_id"`), 400, "customer_id"},
		"repeated by an escape": {orderWith(t, `{"customer_id"`, `{"customer\u005fid":"c-41","customer_id"`), 400, "customer_id"},
		"repeated in an item":   {orderWith(t, `"quantity":2`, `"quantity":2,"quantity":2`), 400, "items[0].quantity"},
		"null field":            {orderWith(t, `"c-42"`, "null"), 400, "customer_id"},
		"number for text":       {orderWith(t, `"c-42"`, "42"), 400, "customer_id"},
		"object for text":       {orderWith(t, `"c-42"`, `{"a":1}`), 400, "customer_id"},
		"true for text":         {orderWith(t, `"EUR"`, "true"), 400, "currency"},
		"text for a number":     {orderWith(t, `:2,`, `:"2",`), 400, "items[0].quantity"},
		"null for a number":     {orderWith(t, "1250", "null"), 400, "items[0].unit_price"},
		"fraction":              {orderWith(t, "1250", "12.5"), 400, "items[0].unit_price"},
		"whole fraction":        {orderWith(t, "1250", "1250.0"), 400, "items[0].unit_price"},
		"exponent":              {orderWith(t, "1250", "1e3"), 400, "items[0].unit_price"},
		"items null":            {orderWith(t, "["+item+"]", "null"), 400, "items"},
		"items object":          {orderWith(t, "["+item+"]", item), 400, "items"},
		"item null":             {orderWith(t, item, "null"), 400, "items[0]"},
		"item text":             {orderWith(t, item, item+`,"tea"`), 400, "items[1]"},
		"half a surrogate pair": {orderWith(t, "ada", `\ud800`), 400, "email"},
		"two high halves":       {orderWith(t, "ada", `\ud800\ud800`), 400, "email"},
		"low half first":        {orderWith(t, "ada", `\udc00`), 400, "email"},
		"high half, then text":  {orderWith(t, "ada", `\ud800x`), 400, "email"},

		"nothing":             {"{}", 422, "customer_id email currency items"},
		"empty item":          {orderWith(t, item, "{}"), 422, "items[0].sku items[0].quantity items[0].unit_price"},
		"no customer":         {orderWith(t, `"customer_id":"c-42",`, ""), 422, "customer_id"},
		"empty customer":      {orderWith(t, "c-42", ""), 422, "customer_id"},
		"long customer":       {orderWith(t, "c-42", strings.Repeat("x", 65)), 422, "customer_id"},
		"space in customer":   {orderWith(t, "c-42", "c 42"), 422, "customer_id"},
		"umlaut in customer":  {orderWith(t, "c-42", "ö"), 422, "customer_id"},
		"slash in sku":        {orderWith(t, "tea-100", "tea/100"), 422, "items[0].sku"},
		"small currency":      {orderWith(t, "EUR", "eur"), 422, "currency"},
		"no such currency":    {orderWith(t, "EUR", "EUX"), 422, "currency"},
		"no currency at all":  {orderWith(t, "EUR", "XXX"), 422, "currency"},
		"no items":            {orderWith(t, item, ""), 422, "items"},
		"101 items":           {orderWith(t, item, strings.Repeat(item+",", 100)+item), 422, "items"},
		"quantity 0":          {orderWith(t, `:2,`, `:0,`), 422, "items[0].quantity"},
		"quantity 10,001":     {orderWith(t, `:2,`, `:10001,`), 422, "items[0].quantity"},
		"price -1":            {orderWith(t, "1250", "-1"), 422, "items[0].unit_price"},
		"price over 10^9":     {orderWith(t, "1250", "1000000001"), 422, "items[0].unit_price"},
		"price beyond int64":  {orderWith(t, "1250", "99999999999999999999"), 422, "items[0].unit_price"},
		"price under -int64":  {orderWith(t, "1250", "-99999999999999999999"), 422, "items[0].unit_price"},
		"total over 10^12":    {orderWith(t, `2,"unit_price":1250`, `1001,"unit_price":1000000000`), 422, "items"},
		"total of many":       {orderWith(t, item, strings.Repeat(`{"sku":"s","quantity":10000,"unit_price":1000000000},`, 99)+item), 422, "items"},
		"every field at once": {`{"customer_id":"","email":"x","currency":"eur","items":[{"sku":"","quantity":0,"unit_price":-1}]}`, 422, "customer_id email currency items[0].sku items[0].quantity items[0].unit_price"},
		"both kinds":          {`{"customer_id":1,"email":"x","currency":"EUR","items":[{"sku":"s","quantity":1.5,"unit_price":-1}],"x":0}`, 400, "customer_id email items[0].quantity items[0].unit_price x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, p := decodeOrder([]byte(tc.body))
			if p == nil {
				t.Fatalf("taken: %+v", got)
			}
			var fields []string
			for _, f := range p.Errors {
				fields = append(fields, f.Field)
				if f.Detail == "" {
					t.Errorf("%s has no detail", f.Field)
				}
			}
			if p.Status != tc.status || strings.Join(fields, " ") != tc.fields {
				t.Errorf("got %d %q (%s), want %d %q", p.Status, fields, p.Detail, tc.status, tc.fields)
			}
		})
	}
}

func TestDecodeOrderBoundsItsAnswer(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	body.WriteString("{")
	for i := range 9_000 {
		fmt.Fprintf(&body, `"%d":0,`, i)
	}
	body.WriteString(`"` + strings.Repeat("ü", 500) + `":0}`)
	_, p := decodeOrder(body.Bytes())
	if p == nil || p.Status != http.StatusBadRequest || len(p.Errors) != maxErrors {
		t.Errorf("got %v with %d errors, want 400 with %d", p, len(p.Errors), maxErrors)
	}
	_, p = decodeOrder([]byte(`{"` + strings.Repeat("ü", 500) + `":0}`))
	if name := p.Errors[0].Field; len(name) > 70 || !strings.HasPrefix(name, "üüü") {
		t.Errorf("a long name was answered as %q", name)
	}
}

func TestCheckEmail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63) + "." + strings.Repeat("y", 63) + "." + strings.Repeat("z", 63)
	for address, ok := range map[string]bool{
		"ada@example.com":                    true,
		"a.b+c=d/e'f@sub.example-1.com":      true,
		"ada@localhost":                      true,
		"user@bücher.test":                   true,
		"अजय@डाटा.भारत":                      true,
		strings.Repeat("x", 64) + "@a.b":     true,
		strings.Repeat("x", 62) + "@" + long: true,
		strings.Repeat("x", 63) + "@" + long: false,
		strings.Repeat("x", 65) + "@a.b":     false,
		"":                                   false,
		"ada":                                false,
		"@example.com":                       false,
		"ada@":                               false,
		"ada@b@c.test":                       false,
		".ada@b.test":                        false,
		"a..b@c.test":                        false,
		"ada.@b.test":                        false,
		"ada@b..test":                        false,
		"ada@.b.test":                        false,
		"ada@b.test.":                        false,
		"ada@-b.test":                        false,
		"ada@b-.test":                        false,
		"ada@" + strings.Repeat("x", 64) + ".test": false,
		"Ada <ada@b.test>":                         false,
		"<ada@b.test>":                             false,
		"ada@b.test>":                              false,
		`"a b"@c.test`:                             false,
		"a b@c.test":                               false,
		"ada@b.test ":                              false,
		"ada@[127.0.0.1]":                          false,
		"ada@b.test(x)":                            false,
		"ada@b.test,eve@b.test":                    false,
		"ada@b.test;eve@b.test":                    false,
		"ada@b.test\r\nBcc: eve@b.test":            false,
		"ada\r\n@b.test":                           false,
		"ada@b.test\n":                             false,
		"ada\x00@b.test":                           false,
		"ada\x7f@b.test":                           false,
		"ada\u0085@b.test":                         false,
		"ada\u00a0@b.test":                         false,
		"ada\u200b@b.test":                         false,
		"ada\u2028@b.test":                         false,
		"ada\u202e@b.test":                         false,
		"ada\ufeff@b.test":                         false,
		"ada\ufffd@b.test":                         false,
		"ada＠b.test":                               false,
		"ada@b。test":                               false,
	} {
		if got := checkEmail(address) == ""; got != ok {
			t.Errorf("%q is taken: %t, want %t", address, got, ok)
		}
	}
}

// FuzzDecodeOrder holds the decoder to encoding/json: what it takes, encoding/json reads as the same order, and it is
// within the limits. It must never panic, whatever comes.
func FuzzDecodeOrder(f *testing.F) {
	for _, body := range []string{
		goodOrder, "", "{}", "null", `{"customer_id":1}`, `{"items":[{"sku":"a","quantity":1e2}]}`, `{"email":"\ud800"}`, `{"email":"\ud83d\ude00@x"}`,
		`{"a":{"b":[1,"]}",null]},"customer_id":"x","customer_id":"y"}`, `{"items":[[],{},"",0,-1.5e+7,true,false,null]}`, "[[[", "\xff", `{"\u0000":0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, p := decodeOrder(body)
		if p != nil {
			if got != nil || p.Status != 400 && p.Status != 422 || p.Detail == "" || p.Status == 422 && len(p.Errors) == 0 {
				t.Fatalf("bad refusal: %v %v %v", got, p, p.Errors)
			}
			return
		}
		var want orderRequest
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("taken, but encoding/json says %v", err)
		}
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("got  %+v\nwant %+v", *got, want)
		}
		placed := event.OrderPlaced{ID: "x", CustomerID: got.CustomerID, Email: got.Email, Currency: got.Currency, Items: got.Items, Total: got.total(), Status: "placed", CreatedAt: testTime}
		data, err := placed.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := event.DecodeOrderPlaced(data); err != nil {
			t.Fatalf("taken, but a consumer refuses it: %v", err)
		}
	})
}

func BenchmarkDecodeOrder(b *testing.B) {
	body := []byte(goodOrder)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, p := decodeOrder(body); p != nil {
			b.Fatal(p)
		}
	}
}

// BenchmarkUnmarshalOrder is encoding/json on the same body, for comparison; it checks next to nothing.
func BenchmarkUnmarshalOrder(b *testing.B) {
	body := []byte(goodOrder)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := json.Unmarshal(body, new(orderRequest)); err != nil {
			b.Fatal(err)
		}
	}
}
