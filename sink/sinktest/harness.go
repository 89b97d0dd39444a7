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

// Destination is a place that events are delivered to, and what can be done to
// it. Open and Received are required; a rule that needs another field is skipped
// where that is empty.
type Destination struct {
	// Open makes a sink for the destination. The suite closes it.
	Open func(t testing.TB) core.Sink
	// Received reads back all messages that the destination holds, those of
	// one key in the destination's order. It may be called again. It waits for
	// nothing: what the destination has confirmed must be there.
	Received func(t testing.TB) []Message
	// Unordered tells that the destination itself keeps no order of what it
	// confirmed. Then only the answers are looked at for order.
	Unordered bool
	// TooLarge is an Event.Size that the destination refuses for good, while it
	// takes events of 3,000 bytes.
	TooLarge int
	// Spoil are ways to change a valid event into one that the destination or
	// the sink refuses or rejects by itself, for each stage at which it may find
	// out: a header or a name that can't travel, a place that doesn't exist.
	Spoil []func(*core.Event)
	// Reject are ways to change a valid event into one that is to be rejected
	// for good, whatever happens later.
	Reject []func(*core.Event)
	// Refuse makes the destination refuse for now the events that spoil changed,
	// until allow is called; from then on it takes them.
	Refuse func(t testing.TB) (spoil func(*core.Event), allow func())
	// RefusedApart tells that those arrive in another place, such as another
	// topic, so that their order beside the rest of their key can't be read back.
	RefusedApart bool
	// Steps are what a sink does to bring events there, each of which can be
	// broken. See CrashPoints.
	Steps []Step
	// Cut makes the destination unreachable until the function that it returns
	// is called.
	Cut func(t testing.TB) (mend func())
	// Freeze makes the destination take connections and requests and answer
	// nothing, until the function that it returns is called; what it took may
	// arrive then.
	Freeze func(t testing.TB) (thaw func())
}

// When is the moment of a fault.
type When int

// The moments.
const (
	// Before the destination gets anything of the step.
	Before When = iota
	// During: it gets a part, or all of it and does a part.
	During
	// After: it has done all, and the sink doesn't learn of it.
	After
)

func (w When) String() string { return [...]string{"before", "during", "after"}[w] }

// Step is an exchange of a sink with its destination: a connection, a look-up,
// a request that holds events.
type Step struct {
	// Name as it is to stand in a table, such as "send".
	Name string
	// Stores tells that the destination holds the events after the step.
	Stores bool
	// Repeats tells that a fault here may make events arrive once more than
	// once, and never oftener.
	Repeats bool
	// Break lets the next occurrence of the step fail at that moment, and only
	// that one. struck tells whether it did, and is called once, when the call of
	// Deliver has ended: what has not failed by then must not fail any more.
	Break func(t testing.TB, when When) (struck func() bool)
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
