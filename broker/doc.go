// Package broker says how events travel, without saying on what: an [Event], a [Publisher] that appends it, a [Handler]
// or [BatchHandler] that does the work for one [Delivery] or several, and the verdicts that a handler gives. Engines
// stand in packages below it (redisstream is the one on Redis Streams), and brokertest holds each of them to the
// same contract.
//
// Every consumer group gets every event. Delivery is at least once, and nothing is promised about the order between
// events. A handler therefore does nothing when it has done the work of an Event.ID before; package processed gives it a
// marker in Postgres for that.
//
//	event.go      Event
//	publisher.go  Publisher and its Receipt
//	handler.go    Handler, BatchHandler, Delivery, Outcome
//	verdict.go    Permanent, Defer, Unavailable
package broker
