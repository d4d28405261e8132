// Package event says what is told about orders: the data of each event type, versioned in its name, and how it is
// written and read. It uses the standard library alone, so that any service can import it.
//
// A type's wire form never changes: testdata holds it, byte for byte. Fields may be added, since readers ignore those they
// do not know; what changes the meaning of a field is a new type, order.placed.v2, told beside the old one for a while.
//
//	event.go     OrderPlaced, encode and decode
//	validate.go  what a reader can rely on
package event
