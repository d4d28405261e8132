package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

const (
	// maxExactCustomers is up to where customers are counted exactly; beyond it the number is an estimate.
	maxExactCustomers = 10_000
	// maxDays is how many days have sums of their own. An order on an older day counts in the totals only.
	maxDays = 400
)

// apply counts a batch of events: marks them as counted and adds what they add up to, or writes nothing.
//
//	KEYS[1]  totalsKey
//	KEYS[2]  skusKey
//	KEYS[3]  customersKey
//	KEYS[4]  sketchKey
//	KEYS[5]  daysKey
//	KEYS[6…] first the marker sets, then the days' hashes
//	ARGV     maxExactCustomers, maxDays, dayPrefix, number of marker sets, then
//	         for each marker set: when it ends (Unix seconds), how many ids, the ids;
//	         number of counters, and for each: its key (a number in KEYS), its field, what to add, what may stand there before;
//	         the largest quantity to add, number of articles, and for each: its name, the quantity to add, negated;
//	         number of days, and for each: "2026-11-29", 20261129;
//	         the customers, to the end.
//
// It answers
//
//	{"ok"}               counted;
//	{"known", "0120…"}   nothing written: for each id, in their order, 0 for a new one, 1 for one that was counted
//	                     before, 2 for one whose marker set has ended, so that nobody knows;
//	{"overflow", field}  nothing written: the sum would be too big.
//
// A script is not rolled back, so all that can fail comes first. Every key is read with a command of its type, every sum
// is compared with what may stand there. Amounts are strings of digits throughout, since Lua's numbers are exact up to
// 2^53 only: for those a longer one is a larger one, and equally long ones compare as strings. The first write is SADD,
// which Redis refuses without memory, without its replicas or as a replica itself; once a script has written, it is allowed to write on.
//
// The only keys that are not in KEYS are those of days that are dropped: which they are stands in daysKey. They have
// the same hash tag.
var apply = redis.NewScript(`
local totals, skus, customers, sketch, days = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local maxCustomers, maxDays, dayPrefix, sets = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local maxQuantity = 9007199254740991 -- of an article; up to here a sorted set's scores are exact
local at = 5

local now = tonumber(redis.call('TIME')[1])
local firstSet, known, states = at, false, {}
for s = 1, sets do
  local n = tonumber(ARGV[at + 1])
  states[s] = redis.call('SMISMEMBER', KEYS[5 + s], unpack(ARGV, at + 2, at + 1 + n))
  local gone = now >= tonumber(ARGV[at])
  for i = 1, n do
    if gone then states[s][i] = 2 end
    if states[s][i] ~= 0 then known = true end
  end
  at = at + 2 + n
end
if known then
  for s = 1, sets do states[s] = table.concat(states[s]) end
  return {'known', table.concat(states)}
end

local firstCounter, counters = at + 1, tonumber(ARGV[at])
for a = firstCounter, firstCounter + 4 * (counters - 1), 4 do
  local found, limit = redis.call('HGET', KEYS[tonumber(ARGV[a])], ARGV[a + 1]) or '0', ARGV[a + 3]
  if not string.find(found, '^%d+$') then return redis.error_reply('ERR ' .. ARGV[a + 1] .. ' is no amount') end
  if #found > #limit or #found == #limit and found > limit then return {'overflow', ARGV[a + 1]} end
end
at = firstCounter + 4 * counters

local most, firstSKU, articles = tonumber(ARGV[at]), at + 2, tonumber(ARGV[at + 1])
local best = redis.call('ZRANGE', skus, 0, 0, 'WITHSCORES')
if best[2] and most - tonumber(best[2]) > maxQuantity then
  for a = firstSKU, firstSKU + 2 * (articles - 1), 2 do
    if -tonumber(ARGV[a + 1]) - tonumber(redis.call('ZSCORE', skus, ARGV[a]) or '0') > maxQuantity then
      return {'overflow', 'quantity of ' .. ARGV[a]}
    end
  end
end
at = firstSKU + 2 * articles

redis.call('ZCARD', days)
redis.call('SCARD', customers)
local head = redis.call('GETRANGE', sketch, 0, 3)
if head ~= '' and head ~= 'HYLL' then return redis.error_reply('WRONGTYPE ' .. sketch .. ' is no HyperLogLog') end
local estimated = redis.call('HEXISTS', totals, 'customers_estimated') == 1

-- From here on nothing fails but the very first write.
local a = firstSet
for s = 1, sets do
  local n = tonumber(ARGV[a + 1])
  redis.call('SADD', KEYS[5 + s], unpack(ARGV, a + 2, a + 1 + n))
  redis.call('EXPIREAT', KEYS[5 + s], ARGV[a])
  a = a + 2 + n
end
for a = firstCounter, firstCounter + 4 * (counters - 1), 4 do
  redis.call('HINCRBY', KEYS[tonumber(ARGV[a])], ARGV[a + 1], ARGV[a + 2])
end
for a = firstSKU, firstSKU + 2 * (articles - 1), 2 do
  redis.call('ZINCRBY', skus, ARGV[a + 1], ARGV[a])
end
local n = tonumber(ARGV[at])
for a = at + 1, at + 2 * n, 2 do
  redis.call('ZADD', days, ARGV[a + 1], ARGV[a])
end
at = at + 1 + 2 * n
local old = redis.call('ZCARD', days) - maxDays
if old > 0 then
  local dropped = redis.call('ZPOPMIN', days, old)
  for i = 1, #dropped, 2 do redis.call('UNLINK', dayPrefix .. dropped[i]) end
end
redis.call('PFADD', sketch, unpack(ARGV, at))
if not estimated then
  redis.call('SADD', customers, unpack(ARGV, at))
  if redis.call('SCARD', customers) > maxCustomers then
    redis.call('UNLINK', customers)
    redis.call('HSET', totals, 'customers_estimated', '1')
  end
end
return {'ok'}
`)

// batch is what one run of apply is given.
type batch struct {
	sales []*sale // in the order of their ids in args
	keys  []string
	args  []any
}

// counter names a field of a hash.
type counter struct {
	key   int // in batch.keys
	field string
}

// newBatch adds up what the sales add to each sum. There are at most maxSales, so no sum passes 10^15.
func newBatch(sales []*sale, retention time.Duration) *batch {
	b := &batch{
		sales: slices.Clone(sales),
		keys:  []string{totalsKey, skusKey, customersKey, sketchKey, daysKey},
		args:  []any{maxExactCustomers, maxDays, dayPrefix},
	}
	slices.SortStableFunc(b.sales, func(x, y *sale) int { return x.made.Compare(y.made) })
	b.addMarkers(retention)

	counters := make(map[counter]int64)
	quantities := make(map[string]int64)
	customers := make(map[string]struct{})
	days := make(map[string]int)
	for _, one := range b.sales {
		day, ok := days[one.day]
		if !ok {
			day = len(b.keys)
			days[one.day] = day
			b.keys = append(b.keys, dayPrefix+one.day)
		}
		revenue := revenuePrefix + one.order.Currency
		for _, key := range []int{0, day} {
			counters[counter{key, "orders"}]++
			counters[counter{key, revenue}] += one.order.Total
		}
		for _, item := range one.order.Items {
			quantities[item.SKU] += item.Quantity
		}
		customers[one.order.CustomerID] = struct{}{}
	}

	b.args = append(b.args, len(counters))
	for c, n := range counters {
		b.args = append(b.args, c.key+1, c.field, n, math.MaxInt64-n)
	}
	var most int64
	for _, n := range quantities {
		most = max(most, n)
	}
	b.args = append(b.args, most, len(quantities))
	for sku, n := range quantities {
		b.args = append(b.args, sku, -n)
	}
	b.args = append(b.args, len(days))
	for day := range days {
		b.args = append(b.args, day, strings.ReplaceAll(day, "-", ""))
	}
	for customer := range customers {
		b.args = append(b.args, customer)
	}
	return b
}

// addMarkers adds the marker sets, one for each day on which an id was made.
func (b *batch) addMarkers(retention time.Duration) {
	sets, count := 0, len(b.args)
	b.args = append(b.args, nil)
	for rest := b.sales; len(rest) > 0; sets++ {
		made := rest[0].made
		n := slices.IndexFunc(rest, func(one *sale) bool { return !one.made.Equal(made) })
		if n < 0 {
			n = len(rest)
		}
		b.keys = append(b.keys, markerPrefix+made.Format(time.DateOnly))
		b.args = append(b.args, made.Add(24*time.Hour+retention).Unix(), n)
		for _, one := range rest[:n] {
			b.args = append(b.args, one.id)
		}
		rest = rest[n:]
	}
	b.args[count] = sets
}

// unknown tells the deliveries of sales that are not new what they are, and returns the others. states is the script's.
func (b *batch) unknown(states string) []*sale {
	var out []*sale
	for i, one := range b.sales {
		switch states[i] {
		case '0':
			out = append(out, one)
		case '1':
			for _, d := range one.deliveries {
				d.Duplicate()
			}
		default:
			for _, d := range one.deliveries {
				d.Reject(broker.Permanent(fmt.Errorf("count event %s: %w", one.id, errLate)))
			}
		}
	}
	return out
}
