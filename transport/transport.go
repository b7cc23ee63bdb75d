// Package transport defines where a delivery's payload goes. Deliver reads
// storage straight into a sink's memory and does not know whether that is a
// staging buffer of a response body, memory shared with the client, or a
// registered buffer of a fabric.
package transport

import "errors"

// ErrClosed is returned by every call on a Sink after Close.
var ErrClosed = errors.New("transport: sink is closed")

// Sink takes the payload of one delivery. Payload bytes are counted from 0;
// layers are model layers, counted from 0. A sink over the client's own memory
// counts from the start of a window in it instead, and not every byte of that
// need be written.
//
// A byte is written by Grab, filling the memory it gave, and Commit. Calls are
// made by one goroutine and in the order of the payload, each Grab at the byte
// after the last Commit, unless Ordered is false: then any ranges that do not
// overlap may be grabbed, filled and committed in any order and at the same time.
//
// After an error from any method but Close the payload is broken: the caller
// calls Close and nothing else.
type Sink interface {
	// Ordered reports whether the payload must be written in order.
	Ordered() bool
	// Grab returns memory for the payload's bytes from off on: as many as lie
	// together, at least 1 and at most n. Its content is undefined. It is the
	// caller's until the Commit of off; ordered sinks lend one piece at a time.
	// It may wait for the client to take what was committed before.
	Grab(off int64, n int) ([]byte, error)
	// Commit says that the first n bytes of the memory grabbed at off are in
	// place; n is at least 1 and may be less than was grabbed. Bytes that are
	// grabbed and never committed are not shown to the client as payload.
	Commit(off int64, n int) error
	// LayerReady says that every byte of a layer has been committed. The
	// client learns it no earlier than it can read all of them, and without
	// waiting for anything that comes later. Layers are announced in order,
	// each once, by one goroutine at a time; if the sink is not ordered, bytes
	// of later layers may be lent meanwhile.
	LayerReady(layer int) error
	// Close ends the delivery, whole or not, and releases the sink's memory.
	// No other call may run. It may be called more than once. The first one's
	// error is that of bytes committed before, on their way still, that did not
	// reach the client.
	Close() error
}

// A Gatherer is a Sink, not ordered, that sends bytes, and those which lie
// together as one write if one goroutine commits them one after the other.
type Gatherer interface {
	// Gather is the size of such a write in bytes, more than 0; it does not change.
	Gather() int
}
