package main

// All keys have one hash tag, so that in a Redis cluster one script may use them together.
const prefix = "analytics:{stats}:"

const (
	// totalsKey is a hash: "orders", "revenue:EUR" and so on, and "customers_estimated", which is there once customersKey is
	// not kept any more. Never trimmed; as many fields as there are currencies.
	totalsKey = prefix + "totals"
	// skusKey is a sorted set: article → its quantity, negated, so that the best come first and equal ones by name. Never
	// trimmed: it has one member for each article ever sold, some 100 bytes.
	skusKey = prefix + "skus"
	// customersKey is the set of the customers, up to maxExactCustomers.
	customersKey = prefix + "customers"
	// sketchKey is a HyperLogLog of the customers, from the first one on. 12 KB at most.
	sketchKey = prefix + "customers:sketch"
	// daysKey is a sorted set: the days that have a dayKey, "2026-11-29" → 20261129. The newest maxDays are kept.
	daysKey = prefix + "days"
	// dayPrefix and a day, in UTC, are a hash: "orders", "revenue:EUR" and so on.
	dayPrefix = prefix + "day:"
	// markerPrefix and a day, in UTC, are the set of the counted events whose id was made on that day. It ends
	// PROCESSED_RETENTION after the day did, and takes some 100 bytes an event until then.
	markerPrefix = prefix + "counted:"
)

// revenuePrefix and a currency are the field of a hash with what was taken in it.
const revenuePrefix = "revenue:"
