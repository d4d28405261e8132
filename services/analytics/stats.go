package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// topSKUs is how many articles the statistics name.
const topSKUs = 10

// Stats is the body of GET /stats. All amounts are exact integers in minor units.
type Stats struct {
	Orders int64 `json:"orders"`
	// Customers is exact up to maxExactCustomers, and beyond that an estimate, as a rule within 2 %.
	Customers int64 `json:"customers"`
	// CustomersEstimated says so. It is left out where the number is exact.
	CustomersEstimated bool `json:"customers_estimated,omitempty"`
	// Revenue is by currency.
	Revenue map[string]int64 `json:"revenue"`
	// TopSKUs are the articles with the largest quantities, equal ones by name.
	TopSKUs []SKUQuantity `json:"top_skus"`
	// Days are those, in UTC, that had orders, the newest first.
	Days []Day `json:"days"`
}

// SKUQuantity is how much of an article was ordered.
type SKUQuantity struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Day is what was ordered on one day.
type Day struct {
	Date    string           `json:"date"`
	Orders  int64            `json:"orders"`
	Revenue map[string]int64 `json:"revenue"`
}

// read reads all sums at one moment.
//
//	KEYS[1]  totalsKey
//	KEYS[2]  skusKey
//	KEYS[3]  customersKey
//	KEYS[4]  sketchKey
//	KEYS[5]  daysKey
//	ARGV[1]  topSKUs
//	ARGV[2]  how many days
//	ARGV[3]  dayPrefix
//
// It answers {fields and values of the totals, articles and negated quantities, number of customers,
// {{day, fields and values of the day}, …}}. Which days there are stands in daysKey, so their keys are not in KEYS. They have
// the same hash tag.
var read = redis.NewScript(`
local customers = redis.call('SCARD', KEYS[3])
if redis.call('HEXISTS', KEYS[1], 'customers_estimated') == 1 then customers = redis.call('PFCOUNT', KEYS[4]) end
local days = redis.call('ZRANGE', KEYS[5], 0, ARGV[2] - 1, 'REV')
for i, day in ipairs(days) do days[i] = {day, redis.call('HGETALL', ARGV[3] .. day)} end
return {redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES'), customers, days}
`)

// stats returns the sums, with the newest days that had orders, at most that many.
func (s *store) stats(ctx context.Context, days int) (Stats, error) {
	keys := []string{totalsKey, skusKey, customersKey, sketchKey, daysKey}
	reply, err := read.Run(ctx, s.client, keys, topSKUs, days, dayPrefix).Slice()
	if err != nil {
		return Stats{}, fmt.Errorf("read the sums: %w", err)
	}
	var out Stats
	p := replyParser{}
	out.Orders, out.Revenue, out.CustomersEstimated = p.sums(p.at(reply, 0))
	skus := p.list(p.at(reply, 1))
	out.TopSKUs = make([]SKUQuantity, 0, topSKUs)
	for i := 0; i+1 < len(skus); i += 2 {
		out.TopSKUs = append(out.TopSKUs, SKUQuantity{p.text(skus[i]), -p.amount(skus[i+1])})
	}
	out.Customers, _ = p.at(reply, 2).(int64)
	if out.CustomersEstimated {
		out.Customers = max(out.Customers, maxExactCustomers+1) // so many there were when the counting stopped
	}
	out.Days = make([]Day, 0, days)
	for _, day := range p.list(p.at(reply, 3)) {
		pair := p.list(day)
		d := Day{Date: p.text(p.at(pair, 0))}
		d.Orders, d.Revenue, _ = p.sums(p.at(pair, 1))
		out.Days = append(out.Days, d)
	}
	if p.err != nil {
		return Stats{}, fmt.Errorf("read the sums: %w", p.err)
	}
	return out, nil
}

// replyParser reads the script's reply, and remembers the first thing that was not as it should be.
type replyParser struct{ err error }

func (p *replyParser) fail(v any, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("%.100v is no %s", v, want)
	}
}

func (p *replyParser) list(v any) []any {
	l, ok := v.([]any)
	if !ok {
		p.fail(v, "list")
	}
	return l
}

func (p *replyParser) at(l []any, i int) any {
	if i >= len(l) {
		p.fail(l, "whole reply")
		return nil
	}
	return l[i]
}

func (p *replyParser) text(v any) string {
	s, ok := v.(string)
	if !ok {
		p.fail(v, "text")
	}
	return s
}

func (p *replyParser) amount(v any) int64 {
	n, err := strconv.ParseInt(p.text(v), 10, 64)
	if err != nil {
		p.fail(v, "amount")
	}
	return n
}

// sums reads the fields of a hash of sums.
func (p *replyParser) sums(v any) (orders int64, revenue map[string]int64, estimated bool) {
	fields := p.list(v)
	revenue = make(map[string]int64)
	for i := 0; i+1 < len(fields); i += 2 {
		name := p.text(fields[i])
		if currency, ok := strings.CutPrefix(name, revenuePrefix); ok {
			revenue[currency] = p.amount(fields[i+1])
		}
		switch name {
		case "orders":
			orders = p.amount(fields[i+1])
		case "customers_estimated":
			estimated = true
		}
	}
	return orders, revenue, estimated
}
