package mongo

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// recoverByScan begins the scan that takes the place of lost change stream
// history. It goes back behind the last entry by the margin: an event that was
// committed after that entry was not written earlier. Some events are read
// again, none is missed.
//
// A second recovery, before the stream has given anything, is an error first,
// so that the caller waits before it tries again.
func (r *reader) recoverByScan(ctx context.Context, cause error) error {
	if r.barren {
		r.barren = false
		return fmt.Errorf("the change stream can't be read, not even after a scan of the log: %w", cause)
	}
	from := before(timestampOf(r.pos.Time), r.margin)
	if from.Before(r.doc.From) {
		from = r.doc.From
	}
	r.beginScan(ctx, scanState{From: from}, cause)
	return nil
}

// rescan begins a scan of the whole log, after another collection took its
// name: its documents came with it, and no stream tells of them.
func (r *reader) rescan(ctx context.Context) {
	r.beginScan(ctx, scanState{From: r.doc.From, First: true}, errReplaced)
}

func (r *reader) beginScan(ctx context.Context, state scanState, cause error) {
	r.barren = true
	r.token = nil
	if r.scanning != nil {
		r.scanning.reset(ctx)
	}
	r.scanning = newScan(r, state)
	r.store.metrics.recovery.Add(ctx, 1, r.store.cursorAttributes(r.doc.Name),
		metric.WithAttributes(attribute.String("outbox.reason", reason(cause))))
	r.store.logger.WarnContext(ctx, "the place in the change stream is lost: scanning the log instead; some events come twice, none is missed",
		"cursor", r.doc.Name, "scan_from", timeOf(state.From), "cause", cause)
}
