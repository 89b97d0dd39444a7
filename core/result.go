package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outcome is what became of one lease that a sink was given.
type Outcome uint8

// The outcomes. The zero value is NotAttempted, so that an answer that a sink
// forgot is never taken for a delivery.
const (
	// NotAttempted: nothing was sent. The event is tried again at once and no
	// attempt is counted.
	NotAttempted Outcome = iota
	// Delivered: the destination confirmed that it holds the event.
	Delivered
	// Refused for now: this event did not get through, a later attempt may.
	// An attempt is counted.
	Refused
	// Rejected for good: no later attempt can succeed, such as an event over
	// the destination's size limit.
	Rejected
	// Unavailable: the destination as a whole takes nothing: no connection, no
	// rights. No attempt is counted.
	Unavailable
	// Throttled: the destination asks to come back after Result.RetryAfter, with
	// everything or with what Result.Throttles names. No attempt is counted.
	Throttled
	// Unknown: the event was sent and no answer came; it may have arrived.
	Unknown
)

var outcomeNames = [...]string{"not attempted", "delivered", "refused", "rejected", "unavailable", "throttled", "unknown"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Result is a sink's answer for one lease.
type Result struct {
	Outcome Outcome
	// Receipt is what the destination said it stored the event as: a
	// partition and offset, a message id. Optional.
	Receipt string
	// Err is the reason when the outcome is not Delivered. It must hold no
	// secret: it is stored and logged.
	Err error
	// RetryAfter is how long to wait, with Throttled. With Refused it is how long
	// the event waits at least, such as one that was greylisted; 0 leaves that to
	// the relay's backoff.
	RetryAfter time.Duration
	// Throttles is what the destination asks to spare, with Throttled: the tenant
	// or domain that is named, while the rest goes on. The zero value, and any
	// target without a name, is the sink as a whole; so is one of scope PauseSink,
	// whatever its name.
	Throttles PauseTarget
}

// ThrottlesAll tells whether the result, which is Throttled, is about the sink
// as a whole.
func (r *Result) ThrottlesAll() bool {
	t := r.Throttles
	return t.Name == "" || t.Scope != PauseTenant && t.Scope != PauseDomain
}

// ResultOf makes a Result from an error: nil is Delivered, an error marked by
// one of the Mark functions has that outcome, an unmarked end of a context is
// Unknown, since it doesn't tell how far the call had come, and any other error
// is Refused.
func ResultOf(receipt string, err error) Result {
	if err == nil {
		return Result{Outcome: Delivered, Receipt: receipt}
	}
	if m, ok := errors.AsType[*markedError](err); ok {
		return Result{Outcome: m.outcome, Err: err, RetryAfter: m.after}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Result{Outcome: Unknown, Err: err}
	}
	return Result{Outcome: Refused, Err: err}
}

// markedError gives an error its outcome.
type markedError struct {
	err     error
	outcome Outcome
	after   time.Duration
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

func mark(err error, o Outcome, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, outcome: o, after: after}
}

// MarkRejected marks err as one that no retry can cure. nil stays nil.
func MarkRejected(err error) error { return mark(err, Rejected, 0) }

// MarkUnavailable marks err as the destination's state, not the event's. nil
// stays nil.
func MarkUnavailable(err error) error { return mark(err, Unavailable, 0) }

// MarkThrottled marks err as a request to come back after the given time. nil
// stays nil.
func MarkThrottled(err error, after time.Duration) error { return mark(err, Throttled, after) }

// MarkUnknown marks err as one after which the event may or may not have
// arrived. nil stays nil.
func MarkUnknown(err error) error { return mark(err, Unknown, 0) }

// MarkNotAttempted marks err as the reason why nothing was sent. nil stays nil.
func MarkNotAttempted(err error) error { return mark(err, NotAttempted, 0) }
