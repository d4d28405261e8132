// Package redisstream is a broker on Redis Streams: a [Publisher] that appends, a [Consumer] that runs a handler on every
// entry of a stream in a consumer group, [DeadLetters] for what failed for good, and a [Trimmer] that removes only
// what every group has done. It works with Redis 7.0 and later.
//
// # What a consumer guarantees
//
//  1. Never lost: an entry leaves a group only by an XACK after its handler returned nil (or after it was skipped), or by
//     a dead letter that is written and acknowledged in one script.
//  2. Own work first: after a restart a consumer takes up its own pending entries before new ones, at once. One live
//     process holds a name; a second one of that name works as "name~random".
//  3. Others' work: entries of a consumer that is gone are taken over once idle for ClaimIdle. For one ClaimIdle after
//     its start, an error of Redis or a stop of its own, a consumer takes nothing from others.
//  4. Heartbeat with a fence: what a consumer holds is renewed, and while it reaches Redis within ClaimIdle no entry
//     runs twice at once. When another consumer owns the entry, the handler's context is cancelled, and neither failure
//     nor dead letter is written.
//  5. Retries back off entry by entry, with jitter. Failures and next try stand in Redis.
//  6. Failures (MaxAttempts) and lost workers (MaxDeliveries) are counted apart. From its third delivery on an entry
//     runs with nothing beside it.
//  7. An outage that a handler reports pauses the consumer and counts nothing.
//  8. A batch that fails is run again entry by entry. Reading never waits to fill a batch.
//  9. Malformed entries go to the dead letters, entries without a body are acknowledged and reported as lost.
//  10. A stream or group that is gone is made again at 0.
//  11. A loss of the server's last entries is seen by the publisher ([broker.Receipt].Lost).
//  12. Trimming never removes what a configured group has not acknowledged.
//  13. Consumers with nothing pending that have been idle for ConsumerExpiry are removed.
//  14. Drain: running handlers finish and are acknowledged, everything else is released at once, uncounted.
//  15. Calm: whatever fails is tried again with growing waits of at most two seconds, and logged once a minute.
//
// # An entry
//
// Its fields are the attributes of a CloudEvents 1.0 event, so that a program in any language can add or read one: specversion ("1.0"), id
// and type, which are required; source, time (RFC 3339), subject, partitionkey, datacontenttype, dataschema, traceparent and
// onlygroup (the one group that it is for), where they are set; and data, the body. Other fields are ignored; a dead letter keeps them.
//
// Beside the stream S a group G has the keys {S}:fail:G, a hash of failures and next tries, and {S}:dead:G, the stream of its dead letters.
// An entry must cross the network within three seconds.
//
// # How it works
//
// One goroutine reads ([Consumer] keeps a connection for that alone), Concurrency goroutines run the handler, one
// acknowledges all that has become done since its last XACK, one renews, one takes over. A quick handler therefore costs
// no round trip an entry. All that is held stands in one table, which decides what runs next.
//
// An entry takes three allocations and under 1.5 kB. A process that consumes tens of thousands a second and holds only a few megabytes
// spends up to half of its CPU time collecting garbage, unless it lets the heap grow: GOGC=300 takes some ten megabytes more
// (https://go.dev/doc/gc-guide#GOGC).
//
// # Files
//
//	config.go      what a consumer can be told
//	consumer.go    Consumer: its life, its health
//	session.go     one life under one name: start, drain
//	name.go        who holds a name
//	reader.go      reading, making the group
//	wire.go        the connection that reads
//	reply.go       the answer to XREADGROUP
//	entry.go       an entry and its event
//	table.go       what is held and who runs next
//	queue.go       first in first out, and by due time
//	blame.go       waits, outages, losses
//	worker.go      running the handler
//	settle.go      what follows from its verdict
//	ack.go         XACK
//	bury.go        dead letters, written
//	deadletter.go  dead letters, read and redriven
//	heartbeat.go   renewing, giving back
//	recovery.go    taking over, removing old consumers
//	publisher.go   XADD
//	trim.go        XTRIM
//	calm.go        waits after errors
//	keys.go        every key
//	scripts.go     every script of the consumer
package redisstream
