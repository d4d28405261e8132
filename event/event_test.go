package event

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// golden is the order in testdata/order.placed.v1.json.
var golden = OrderPlaced{
	ID: "01936b2e-7b1a-7c3d-9e4f-0123456789ab", CustomerID: "c-42", Email: "ada@example.com", Currency: "EUR",
	Items: []Item{{SKU: "tea-100", Quantity: 2, UnitPrice: 1250}, {SKU: "cup:blue", Quantity: 1, UnitPrice: 0}},
	Total: 2500, Status: "placed", CreatedAt: time.Date(2026, 11, 29, 23, 59, 59, 123456000, time.UTC),
}

func TestGoldenFile(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/order.placed.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want = bytes.TrimSuffix(want, []byte("\n"))
	got, err := golden.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the wire form of %s changed:\n got %s\nwant %s", TypeOrderPlaced, got, want)
	}
	back, err := DecodeOrderPlaced(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, golden) {
		t.Errorf("read as %+v, want %+v", back, golden)
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	data, err := golden.Encode()
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`{`), []byte(`{"gift":{"note":"for you"},`), 1)
	if _, err := DecodeOrderPlaced(data); err != nil {
		t.Errorf("a field of a later producer: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good, err := golden.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// The library says "cannot" or "unable to", as chance has it in each process: the wording in want leaves that out.
	for name, test := range map[string]struct{ old, new, want string }{
		"no JSON":           {string(good), "{", "unexpected EOF"},
		"empty":             {string(good), "", "unexpected EOF"},
		"trailing data":     {`"}`, `"}{}`, "after top-level value"},
		"a name twice":      {`"currency":"EUR"`, `"currency":"EUR","currency":"USD"`, "duplicate object member name"},
		"another case":      {`"id":"`, `"ID":"`, "no id"},
		"no UTF-8":          {"c-42", "c-\xff", "invalid UTF-8"},
		"null":              {string(good), "null", "no id"},
		"a list":            {string(good), "[]", "unmarshal JSON array"},
		"no id":             {golden.ID, "", "no id"},
		"no customer":       {`"c-42"`, `""`, "no customer_id"},
		"no currency":       {`"EUR"`, `""`, "no currency"},
		"no time":           {`"2026-11-29T23:59:59.123456Z"`, `"0001-01-01T00:00:00Z"`, "no created_at"},
		"no sku":            {`"tea-100"`, `""`, "items[0]: no sku"},
		"fraction":          {`1250`, `12.5`, `"/items/0/unit_price": invalid syntax`},
		"beyond int64":      {`"unit_price":1250`, `"unit_price":9223372036854775808`, `"/items/0/unit_price": value out of range`},
		"negative quantity": {`"quantity":2`, `"quantity":-2`, "items[0]: out of range"},
		"overflow":          {`"quantity":2,"unit_price":1250`, `"quantity":4,"unit_price":4611686018427387904`, "items[0]: out of range"},
		"wrong total":       {`"total":2500`, `"total":2501`, "not the sum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := strings.Replace(string(good), test.old, test.new, 1)
			_, err := DecodeOrderPlaced([]byte(data))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), TypeOrderPlaced) {
				t.Errorf("got %v, want %q and the type's name", err, test.want)
			}
		})
	}
}

// FuzzDecodeOrderPlaced: what is accepted can be written again and read as the same order.
func FuzzDecodeOrderPlaced(f *testing.F) {
	good, err := golden.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"id":"a","customer_id":"b","currency":"EUR","items":[{"sku":"x","quantity":1}],"created_at":"2026-01-01T00:00:00+14:00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := DecodeOrderPlaced(data)
		if err != nil {
			return
		}
		again, err := o.Encode()
		if err != nil {
			t.Fatalf("%q is read but cannot be written: %v", data, err)
		}
		back, err := DecodeOrderPlaced(again)
		if err != nil || !back.CreatedAt.Equal(o.CreatedAt) {
			t.Fatalf("%q written as %q reads as %+v, %v", data, again, back, err)
		}
		back.CreatedAt = o.CreatedAt
		if !reflect.DeepEqual(back, o) {
			t.Fatalf("%+v written and read is %+v", o, back)
		}
	})
}

// BenchmarkDecodeOrderPlaced beside encoding/json, which checks less.
func BenchmarkEncodeOrderPlaced(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := golden.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeOrderPlaced(b *testing.B) {
	data, err := golden.Encode()
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func() error{
		"ours":          func() error { _, err := DecodeOrderPlaced(data); return err },
		"encoding/json": func() error { return json.Unmarshal(data, new(OrderPlaced)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
