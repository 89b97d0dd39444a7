package consumer

import (
	"context"
	"fmt"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// Delivery is one event as it arrived, and how it was delivered. It is a value:
// handlers may keep it, but not change Payload and Headers.
type Delivery struct {
	// Event has the fields that the form carries, see Form; the others are zero.
	core.Event
	// Form is the shape in which the event travelled.
	Form Form
	// Source is the log that the event was stored in, the CloudEvents source
	// attribute. Empty in the other forms.
	Source string
	// Route is the name of the cursor that delivered the event, and Fence rises
	// with each take-over of it. Empty and 0 for a job.
	Route string
	Fence uint64
	// Redriven: an operator sent the event again after it had failed, so that it
	// may come after later events of its key.
	Redriven bool
	// DeadLettered: the message was given up by a consumer before, and comes from
	// where it was put then.
	DeadLettered bool
}

// Form is the shape in which an event travels. The zero value stands for any.
type Form = wire.Form

// The forms, see docs/wire.md.
const (
	// CloudEvents carries all fields of the event.
	CloudEvents = wire.CloudEvents
	// Debezium carries ID, AggregateID, Type, Payload and Headers.
	Debezium = wire.Debezium
	// Bare carries what Debezium does, and ContentType.
	Bare = wire.Bare
)

// Handler has the effect of one event. nil acknowledges it. An error is read by
// core.ResultOf:
//
//   - marked by core.MarkRejected, as those of Payload and JSON are: the event is
//     a dead letter at once;
//   - marked by core.MarkThrottled, as dedupe's "in flight" is: it is tried again
//     after that time, and no attempt is counted;
//   - marked by core.MarkUnavailable or core.MarkNotAttempted: what the handler
//     needs, such as a database, is away. It is tried again, without limit, and
//     no attempt is counted;
//   - any other, and a panic: an attempt is counted, and the event is tried again
//     until Retry.MaxAttempts.
//
// ctx ends when the message can no longer be acknowledged by this process, and
// some time after a shutdown began.
type Handler func(ctx context.Context, d Delivery) error

// BatchHandler has the effects of several events, in their order: all of them
// or none. An error that is not a matter of waiting makes the adapter call it
// again with one event at a time, so that one bad event doesn't spoil the others.
type BatchHandler func(ctx context.Context, ds []Delivery) error

// Single makes a Handler of a BatchHandler.
func (h BatchHandler) Single() Handler {
	return func(ctx context.Context, d Delivery) error { return h(ctx, []Delivery{d}) }
}

// Payload decodes the payload. The error is marked as rejected: no later try can
// decode it. It names the event's id and type, and Go's type, not the payload.
func Payload[T any](d Delivery, enc core.Encoding) (T, error) {
	var v T
	if err := enc.Unmarshal(d.Payload, &v); err != nil {
		return v, core.MarkRejected(&DecodeError{
			Field: "Payload", Problem: fmt.Sprintf("of event %.64q of type %.64q is no %T", d.ID, d.Type, v), Err: err,
		})
	}
	return v, nil
}

// JSON decodes a payload that is JSON, see Payload.
func JSON[T any](d Delivery) (T, error) { return Payload[T](d, core.JSONEncoding{}) }

// DecodeError tells that a message is not an event in a known form, or that its
// payload is not what was expected: poison. Adapters make it a dead letter at
// once.
type DecodeError struct {
	// Field is the header or field in question.
	Field string
	// Problem says what is wrong with it, without its value.
	Problem string
	// Err is the cause, if there is one. It isn't part of the text: it may quote
	// the payload.
	Err error
}

func (e *DecodeError) Error() string { return "decoding a message: " + e.Field + " " + e.Problem }
func (e *DecodeError) Unwrap() error { return e.Err }
