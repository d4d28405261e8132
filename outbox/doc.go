// Package outbox keeps events in the database until a broker has taken them. A service writes an event in the same
// transaction as what the event tells of, with [Add]; a [Relay] publishes it afterwards. So there is an event where, and only
// where, the transaction was committed, whether or not the broker was up.
//
// What it guarantees:
//
//   - An event that was committed is published, at least once, with the ID that it was given. It is published again
//     with that ID where an answer was lost, a process died or froze at the wrong moment, or the broker lost its tail.
//   - Waiting rows are found by "not yet published", in the order of the identity column. Ids are committed out of order, so
//     a look begins a few hundred ids below the last that went out, and all rows are looked at once or twice a Sweep. What was published since
//     the last VACUUM, or while somebody's transaction holds an old snapshot, costs the other looks nothing.
//   - Any number of replicas may run a Relay on one outbox. A lease row, on the database's clock, lets one of them
//     publish at a time. One that is killed or frozen keeps it for LeaseTimeout at most, for three times that where the database's clock was
//     set back meanwhile; one that stops in order gives it up.
//   - Nothing is held open in the database while the broker is waited for: no transaction, no lock, no connection.
//   - In a backlog the broker takes one batch while the database marks the one before and reads the one after, on two connections. Where
//     the mark finds that the lease was lost, what was read is thrown away.
//   - A row counts as published once the broker has acknowledged it and its relay still had the lease when it wrote that
//     down. A relay whose lease was taken over writes nothing, and the event goes out again.
//   - Where the broker says that its tail may be gone ([broker.Receipt].Lost), what was published within RepublishWindow
//     before the newest published row is published again. That is written in one transaction with the broker's new
//     position, and is on the disk before anything else goes out, so a crash of either side repeats it. It needs no new event
//     to be noticed.
//   - A new row in this process goes out at once ([Relay.Wake] after the commit). Where another replica has the lease, that one
//     is told by NOTIFY, at most every 20 ms. A sweep finds the rest, with no new traffic, after any outage.
//   - A row that the broker refuses while it takes others is set aside for ten seconds at a time and named in the log; its
//     neighbours pass.
//   - Published rows are deleted after Retention, in small batches; rows that wait are never deleted.
//   - An outage means growing waits with jitter, up to two seconds, and a log line a minute.
//
// Events go out in the order of their rows, save for rows that were set aside and rows that are published again.
//
// The tables are those of [Schema]. A quiet event costs two round trips: one that takes the
// lease and the rows, one that marks the rows, reads what came meanwhile, and where that is nothing gives the lease up. Both are prepared,
// and committed without waiting for the disk, save for a mark that finds a loss. All statements name the types of their parameters and results, so that a change of the
// schema breaks no cached plan. Behind a transaction pooler that knows no prepared statements, set default_query_exec_mode in the pool's
// address (https://pkg.go.dev/github.com/jackc/pgx/v5#ParseConfig); LISTEN hears nothing there, and the sweep does its work.
//
// A role per file:
//
//	schema.go    Schema
//	add.go       Add
//	config.go    RelayConfig
//	relay.go     Relay: Run, Wake, when to take a turn
//	turn.go      a turn: take, publish, mark
//	batch.go     reading a batch; the transaction that statements go in
//	lease.go     the statements of a turn
//	floor.go     where a look at the outbox begins
//	single.go    a batch that the broker refuses, row by row
//	listen.go    NOTIFY between replicas
//	retention.go deleting what is old
//	health.go    Check, CheckBroker, Stats
//	backlog.go   Waiting: how many wait, for how long
//	republish.go Events, for the operator
//	calm.go      waits and log lines in an outage
package outbox
