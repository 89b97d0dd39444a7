package sinktest

import (
	"testing"

	"github.com/gooutbox/outbox/core"
)

// Harness makes what the suite works on.
type Harness struct {
	// New makes an empty destination that no other test uses. It cleans up by
	// t.Cleanup. Required.
	New func(t testing.TB) Destination
}

// Destination is a place that events are delivered to. Open and Received are
// required; a rule whose fault is nil is skipped.
type Destination struct {
	// Open makes a sink for the destination. The suite closes it.
	Open func(t testing.TB) core.Sink
	// Received reads back all messages that the destination holds, those of
	// one key in the destination's order. It may be called again. It waits for
	// nothing: what the destination has confirmed must be there.
	Received func(t testing.TB) []Message
	// TooLarge is an Event.Size that the destination refuses for good, while it
	// takes events of a few hundred bytes.
	TooLarge int
	// Spoil are ways to change a valid event into one that the destination or
	// the sink refuses or rejects by itself, for each stage at which it may find
	// out: a header or a name that can't travel, a place that doesn't exist.
	Spoil []func(*core.Event)
	// Cut makes the destination unreachable until the function that it returns
	// is called.
	Cut func(t testing.TB) (mend func())
	// Freeze makes the destination take connections and requests and answer
	// nothing, until the function that it returns is called; what it took may
	// arrive then.
	Freeze func(t testing.TB) (thaw func())
}

// Message is one event as it was read back.
type Message struct {
	// ID is the event's id.
	ID string
	// Key is the event's AggregateID.
	Key string
	// Payload is the body.
	Payload []byte
}
