package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// lane makes one call to the sink after the other.
func (t *term) lane() {
	var b batch
	for t.next(&b) {
		if b.jobs != nil {
			if !t.deliverJobs(&b) {
				return
			}
			b = batch{}
			continue
		}
		results, ok := t.deliver(t.delivering, &b)
		if !ok {
			return
		}
		crash.Here("relay.delivered")
		t.settle(&b, results)
		b.clear(mayBeKept(results))
	}
}

// errLeaseEnded is why a term ends whose lease ran out.
var errLeaseEnded = errors.New("the lease ran out before it could be renewed")

// deliver calls the sink, if the lease still runs. It returns false when the
// term is over.
func (t *term) deliver(ctx context.Context, b *batch) ([]core.Result, bool) {
	if b.suspect != nil {
		mark := b.suspect
		if !t.persist(opSuspect, func(ctx context.Context) error { return t.cursor.Suspect(ctx, mark) }) {
			return nil, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.route.cfg.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for i := range b.leases {
		b.leases[i].Deadline = deadline
	}
	if !time.Now().Before(t.cursor.Expires()) {
		t.end(errLeaseEnded)
		return nil, false
	}
	ctx, span := t.route.tracer.start(ctx, b.leases)
	began := time.Now()
	results, err := call(ctx, t.route.sink, b.leases)
	if err == nil && len(results) != len(b.leases) {
		err = fmt.Errorf("the sink answered %d results for %d leases", len(results), len(b.leases))
	}
	if err != nil {
		// What was sent isn't known.
		t.route.log.Error("the sink broke its contract: the outcome of its events is unknown",
			"error", err, "events", len(b.leases), "stack", stackOf(err))
		results = make([]core.Result, len(b.leases))
		for i := range results {
			results[i] = core.Result{Outcome: core.Unknown, Err: err}
		}
	}
	for i := range results {
		if results[i].Outcome > core.Unknown {
			results[i] = core.Result{Outcome: core.Unknown, Err: fmt.Errorf("the sink answered %v", results[i].Outcome)}
		}
	}
	// What was delivered is saved at once, which ends its note too.
	if b.suspect != nil && results[0].Outcome != core.Delivered &&
		!t.persist(opSuspect, func(ctx context.Context) error { return t.cursor.Suspect(ctx, nil) }) {
		return nil, false
	}
	n := tallyOf(results)
	t.route.metrics.called(time.Since(began), len(b.leases), n)
	t.route.tracer.end(span, n, results)
	return results, true
}

// panicError is a panic of a sink.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the sink panicked: %v", e.value) }

func stackOf(err error) string {
	if p, ok := errors.AsType[*panicError](err); ok {
		return string(p.stack)
	}
	return ""
}

// call calls the sink and turns a panic into an error.
func call(ctx context.Context, sink core.Sink, leases []core.Lease) (results []core.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return sink.Deliver(ctx, leases), nil
}

// mayBeKept tells whether the sink may still read the leases of a call: it may
// where an outcome is unknown.
func mayBeKept(results []core.Result) bool {
	for i := range results {
		if results[i].Outcome == core.Unknown {
			return true
		}
	}
	return false
}
