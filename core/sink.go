package core

import (
	"context"
	"time"
)

// Lease is the right to deliver one event until its deadline.
type Lease struct {
	// Event is what to deliver. Its Payload and Headers are shared and must
	// not be changed, nor kept after Deliver returns.
	Event Event
	// Deadline is when the right ends, on this process's monotonic clock. The
	// context of the Deliver call ends no later. Zero means no deadline.
	Deadline time.Time
	// Attempt counts from 1 the tries that were made, this one included, and
	// without those that don't count: a lease that ran out, an outage.
	Attempt int
	// Redelivered tells that an earlier try may have reached the destination.
	Redelivered bool
	// Redriven tells that an operator sent the event again after it had
	// failed, so that it may come after later events of its key.
	Redriven bool
	// Source is where the event was stored: the CloudEvents source attribute,
	// such as "/outbox/shop/outbox".
	Source string
	// Route is the name of the cursor that read the event, empty for a job.
	Route string
	// Fence rises with each take-over of the cursor; a consumer that saw a
	// higher one for the same Route and key can drop a lower. 0 for a job.
	Fence uint64
}

// Sink brings events to one destination. Deliver may be called by several
// goroutines at once, never with two events of one key and Route in two calls
// at the same time. Jobs that were enqueued have no Route and no order: several
// of one key may be in calls at the same time.
//
// The order rule: a call holds at most one event of a key, unless the sink
// declares PrefixPerKey. Then, once an event of a key is not delivered, no
// later one of that key is sent in that call; those come back as
// NotAttempted.
//
// A sink classifies and never retries: waiting and trying again is the relay's
// work. After Deliver returned, nothing more reaches the destination from that
// call, except for events whose result was Unknown.
type Sink interface {
	// Deliver sends the leased events and returns one result per lease, in the
	// order of leases. It returns when ctx ends, at the latest after what a
	// destination's protocol needs to be left in a sane state.
	Deliver(ctx context.Context, leases []Lease) []Result
	// Close frees what the sink holds. It returns when ctx ends, may be called
	// more than once, and while Deliver runs: those calls then end, and answer
	// truthfully.
	Close(ctx context.Context) error
}

// Capabilities is what a sink declares about itself. The zero value is a sink
// that takes one event of a key a call, repeats at worst, and knows no limit.
type Capabilities struct {
	// PrefixPerKey: a call may hold several events of a key, see Sink.
	PrefixPerKey bool
	// NoRepeat: an event of unknown outcome is not sent again by itself.
	NoRepeat bool
	// MaxBatch is the largest useful number of leases a call. 0 means any.
	MaxBatch int
	// MaxEventBytes is the largest Event.Size that can get through, 0 if not
	// known. A larger event is Rejected.
	MaxEventBytes int
}

// Describer is implemented by sinks that declare their capabilities.
type Describer interface {
	Capabilities() Capabilities
}

// CapabilitiesOf returns what s declares, or the zero value.
func CapabilitiesOf(s Sink) Capabilities {
	if d, ok := s.(Describer); ok {
		return d.Capabilities()
	}
	return Capabilities{}
}

// Checker is implemented by sinks that can say before the first event whether
// they would work: connection, rights, the destinations that are fixed by
// configuration.
type Checker interface {
	Check(ctx context.Context) error
}

// SinkFunc makes a Sink of a function that delivers one event. Its error is
// read by ResultOf. Close does nothing. A relay calls it for several events at
// once by running several lanes.
type SinkFunc func(ctx context.Context, lease Lease) error

// Deliver calls f for one lease after the other until ctx ends.
func (f SinkFunc) Deliver(ctx context.Context, leases []Lease) []Result {
	results := make([]Result, len(leases))
	for i, l := range leases {
		if err := ctx.Err(); err != nil {
			results[i] = Result{Outcome: NotAttempted, Err: err}
			continue
		}
		results[i] = ResultOf("", f(ctx, l))
	}
	return results
}

// Close does nothing.
func (SinkFunc) Close(context.Context) error { return nil }
