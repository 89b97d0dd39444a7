package relay

import (
	"context"
	"errors"
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
	results, err := call(ctx, t.route.sink, b.leases, t.route.caps)
	if err != nil {
		t.route.log.Error("the sink broke its contract: its events are tried again",
			"error", err, "events", len(b.leases), "stack", stackOf(err))
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

// mayBeKept tells whether the sink may still read the leases of a call: it may
// where an outcome is unknown.
func mayBeKept(results []core.Result) bool {
	for i := range results {
		if mayHaveArrived(&results[i]) {
			return true
		}
	}
	return false
}
