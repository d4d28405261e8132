// Package processed remembers in Postgres which consumer has done which event, so that an event that is delivered twice is
// done once. It is for consumers whose work is in the same database: marker and work are committed in one
// transaction, or neither is.
//
//	tx, err := pool.Begin(ctx)
//	...
//	fresh, err := processed.Claim(ctx, tx, "bonus", ids) // the events that were not done before
//	... do the work for fresh, in tx ...
//	err = tx.Commit(ctx)
//
// What it guarantees:
//
//   - Of all transactions that claim an event for a consumer, one gets it, and only if it is committed. A second one waits for
//     the first to end.
//   - Claims never deadlock with each other: each takes its events in byte order. Take other locks after the claim, in a fixed
//     order too.
//   - A marker is there until [Prune] deletes it. Keep markers for longer than an event can come back: the time that it
//     stays in the outbox and in the broker, and the longest wait for retries.
//
// The table is that of [Schema].
//
//	schema.go Schema
//	claim.go  Claim, ClaimSQL
//	prune.go  Prune
package processed
