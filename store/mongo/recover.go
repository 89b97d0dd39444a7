package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// recoverByScan begins the scan that takes the place of lost change stream
// history. It goes back behind the last entry by the margin: an event that was
// committed after that entry was not written earlier. Some events are read
// again, none is missed.
//
// Another recovery, before the stream has given anything, is an error until its
// time has come. The stream may be tried in between.
func (r *reader) recoverByScan(ctx context.Context, cause error) error {
	if wait := r.pace.wait(time.Now()); wait > 0 {
		return fmt.Errorf("the change stream can't be read, not even after a scan of the log; the next scan is in %s at the earliest: %w",
			wait.Round(time.Second), cause)
	}
	if err := r.store.CheckLog(ctx); errors.Is(err, ErrUnfitLog) {
		return fmt.Errorf("opening the change stream: %w (%w)", err, cause)
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
	r.pace.began()
	r.token = nil
	if r.scanning != nil {
		r.scanning.reset(ctx)
	}
	r.scanning = newScan(r, state)
	r.store.metrics.recovery.Add(ctx, 1, r.store.cursorAttributes(r.doc.Name),
		metric.WithAttributes(attribute.String("outbox.reason", reason(cause))))
	args := []any{"cursor", r.doc.Name, "scan_from", timeOf(state.From), "cause", cause}
	if !state.From.IsZero() {
		fields := r.store.cfg.Fields
		args = append(args, "not_covered", fmt.Sprintf("documents without %s whose %s was more than %s before their insert and whose _id is no ObjectId made at it, "+
			"and documents whose %s was set by hand", fields.Seq, fields.OccurredAt, r.store.cfg.ClockSlack, fields.Seq))
	}
	r.store.logger.WarnContext(ctx, "the place in the change stream is lost: scanning the log instead; some events come twice, none is missed", args...)
}
