package relay

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/gooutbox/outbox/core"
)

// FailurePolicy says what becomes of a key when one of its events failed for
// good.
type FailurePolicy uint8

// The policies.
const (
	// Skip lets the key go on: the failed event leaves the order, and is
	// delivered late and marked if a person retries it.
	Skip FailurePolicy = iota
	// Hold lets the key wait until a person retries or discards the failed
	// event. Other keys go on.
	Hold
)

func (p FailurePolicy) String() string {
	switch p {
	case Skip:
		return "skip"
	case Hold:
		return "hold"
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// FailedJob is an event or job that failed for good.
type FailedJob struct {
	// ID of the job that keeps it, as commands name it.
	ID string
	// EventID, Key (AggregateID), Type and Tenant of the event; empty where the
	// stored document doesn't tell.
	EventID, Key, Type, Tenant string
	// Sink is where it should have gone. Route is the cursor that read it, empty
	// for a job that was enqueued.
	Sink, Route string
	// Attempts is how often it was tried.
	Attempts int
	// Failure is why it failed.
	Failure core.Failure
}

// failed counts, logs and tells what was durably set aside. No lock is held.
func (rt *route) failed(ctx context.Context, j FailedJob) {
	j.Sink, j.Route = rt.cfg.Sink, rt.cfg.Name
	rt.metrics.failed(j.Failure.Code)
	attrs := []any{"job", short(j.ID)}
	if j.EventID != "" { // the job's id says more of a document that is no event
		attrs = append(attrs, "event", short(j.EventID))
	}
	rt.log.Error("an event failed for good and was set aside", append(attrs, "key", short(j.Key),
		"type", short(j.Type), "attempts", j.Attempts, "code", j.Failure.Code, "reason", j.Failure.Reason)...)
	rt.relay.onFailed(ctx, j)
}

// onFailed calls the hook, whose panic must not end the process.
func (r *Relay) onFailed(ctx context.Context, j FailedJob) {
	if r.cfg.OnFailed == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("OnFailed panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	r.cfg.OnFailed(ctx, j)
}
