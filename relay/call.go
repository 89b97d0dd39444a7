package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gooutbox/outbox/core"
)

// call calls the sink and returns a result for each lease. The error tells that
// the sink broke its contract: what was sent isn't known then. A panic at one
// event alone counts as a refusal of that event, unless the sink must not repeat.
func call(ctx context.Context, sink core.Sink, leases []core.Lease, caps core.Capabilities) ([]core.Result, error) {
	results, err := caught(ctx, sink, leases)
	if err == nil && len(results) != len(leases) {
		err = fmt.Errorf("the sink answered %d results for %d leases", len(results), len(leases))
	}
	if err != nil {
		all := core.Result{Outcome: core.Unknown, Err: err}
		if isPanic(err) && len(leases) == 1 && !caps.NoRepeat {
			all.Outcome = core.Refused
		}
		results = make([]core.Result, len(leases))
		for i := range results {
			results[i] = all
		}
		return results, err
	}
	for i := range results {
		if results[i].Outcome > core.Unknown {
			err = fmt.Errorf("the sink answered %v", results[i].Outcome)
			results[i] = core.Result{Outcome: core.Unknown, Err: err}
		}
	}
	return results, err
}

// caught turns a panic into an error.
func caught(ctx context.Context, sink core.Sink, leases []core.Lease) (results []core.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return sink.Deliver(ctx, leases), nil
}

// panicError is a panic of a sink.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the sink panicked: %v", e.value) }

func isPanic(err error) bool {
	_, is := errors.AsType[*panicError](err)
	return is
}

func stackOf(err error) string {
	if p, ok := errors.AsType[*panicError](err); ok {
		return string(p.stack)
	}
	return ""
}

// mayHaveArrived tells whether the destination may hold the event although it
// was not confirmed.
func mayHaveArrived(r *core.Result) bool { return r.Outcome == core.Unknown || isPanic(r.Err) }
