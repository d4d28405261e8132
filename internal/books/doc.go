// Package books checks whether the whole system's books balance: for every accepted order each group must have done its
// work once. It reads Postgres and Redis and writes nothing, also while the system works at full speed.
//
// Each accepted order is, for each group, exactly one of: done, waiting (in the outbox, unread, or pending), dead, in
// doubt, unknown or lost. Lost means that it is none of the others. See [Group] for what is counted.
//
// # Why a moving event is never called lost
//
// There is no moment at which Postgres and Redis can be read together, and events move meanwhile. But they move one way:
//
//	accepted, in the outbox → in the stream, unread → pending → done
//	                                                  └────────→ dead
//
// and each step makes the new place before it gives up the old one: an outbox row is marked after its entry is added, an
// entry is acknowledged after its work is done, and a dead letter is written and its entry acknowledged in one script. So a
// reader that goes the same way meets each event at least once, wherever it was when he began: what has left a place
// before he looks there is further on, where he has not been yet. The places are read in this order, and each group's last
// delivered id before its pending list, and that before the entries themselves. What has an effect counts as done, wherever
// else it was met.
//
// Three things move the other way: a redrive (dead → stream), a republish (published → outbox or stream), and an order that is
// accepted after its place was read. So what is met nowhere is only a suspect. For the suspects, which are a fixed set from
// then on, all is read again in the same order: the outbox, the entries and dead letters that came since, the effects.
// A redrive and a republish make a new entry, with an id above all that was read, so they are met now. It is done at least
// twice, with a pause, and until a pass clears nobody.
//
// Twice is judged within one statement or one script, so nothing can move: ledger and orders, ledger and balances. The sums of
// analytics are read before the orders and once more after the effects. What was counted when they were first read is
// accepted and marked by the time that the orders and markers are read, and what is marked then is in the second sums. So
// the first must not be above, nor the second below, what orders and markers add up to; where nothing moves, both are equal.
//
// # Where Redis lost its tail
//
// A Redis that was killed may have lost what came last. Entries are nowhere then whose rows are marked as published, until the
// relay notices and publishes the rows of the last republish window again: within a second, or when orders runs again. The relay
// has written down where it left Redis (its run id and the stream's last id). While Redis is not there, an order of such a row that
// would be lost waits in the outbox, and nothing is settled. That is read before all else, so what the relay does
// meanwhile changes nothing. It is compared once more in the end: where Redis was restarted or set back meanwhile, what was read
// is of two states that do not belong together, and all is read again.
//
//	config.go    Config: the services' settings
//	read.go      Read: the passes
//	report.go    Report, Group, Verdict
//	places.go    outbox, stream, pending, dead letters
//	effect.go    an order and what the three groups made of it
//	ledger.go    bonus: what is wrong in ledger and accounts
//	sums.go      analytics: reading the sums
//	compare.go   analytics: sums against orders
//	mail.go      mailer: lost or unknown
//	tail.go      whether Redis is where the relay left it
//	settle.go    waiting until nothing moves
//	passport.go  one order: what is shown
//	watch.go     one order: looking at it again and again
//	keys.go      keys of the services
//	text.go      for people
package books
