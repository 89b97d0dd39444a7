package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Explain tells why something has not gone out, in one state of the database, see
// core.Admin. An event with a job is explained by its job; without one it counts
// as delivered when every cursor has passed it.
func (s *Store) Explain(ctx context.Context, id string) (core.Explanation, error) {
	var e core.Explanation
	err := s.exists(ctx)
	if err == nil {
		err = s.read(ctx, func(tx *sql.Tx) error {
			e, err = explainer{tx: tx}.explain(ctx, id)
			return err
		})
	}
	if err != nil {
		return core.Explanation{}, fmt.Errorf("explaining %s: %w", id, err)
	}
	return e, nil
}

// explainer is one Explain.
type explainer struct {
	tx      *sql.Tx
	now     time.Time
	pauses  []core.Pause
	cursors []runningCursor
}

// runningCursor is what Explain knows of a cursor.
type runningCursor struct {
	name, owner, sink string
	until             time.Time
	// behind: it has still to deliver the event.
	behind bool
}

func (x explainer) explain(ctx context.Context, id string) (core.Explanation, error) {
	var now int64
	if err := x.tx.QueryRowContext(ctx, "SELECT "+sqlNow).Scan(&now); err != nil {
		return core.Explanation{}, err
	}
	x.now = time.UnixMilli(now).UTC()
	var err error
	if x.pauses, err = pausesIn(ctx, x.tx); err != nil {
		return core.Explanation{}, err
	}
	if err := x.loadCursors(ctx, id); err != nil {
		return core.Explanation{}, err
	}
	job, err := x.explained(ctx, id)
	if err != nil {
		return core.Explanation{}, err
	}
	if job != nil {
		causes, err := x.causes(ctx, job)
		info := job.info()
		return core.Explanation{ID: id, State: string(job.state), Causes: causes, Job: &info}, err
	}
	var published sql.NullInt64
	err = x.tx.QueryRowContext(ctx, "SELECT published_at FROM outbox WHERE event_id = ?", id).Scan(&published)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return core.Explanation{}, core.ErrNoJob
	case err != nil:
		return core.Explanation{}, err
	}
	return x.explainEvent(ctx, id, timeOf(published))
}

// loadCursors reads how the cursors stand towards the event with this id, if
// there is one.
func (x *explainer) loadCursors(ctx context.Context, event string) error {
	return each(ctx, x.tx, func(rows *sql.Rows) error {
		var c runningCursor
		var until sql.NullInt64
		err := rows.Scan(&c.name, &c.owner, &c.sink, &until, &c.behind)
		c.until = timeOf(until)
		x.cursors = append(x.cursors, c)
		return err
	}, `SELECT name, owner, sink, lease_until, coalesce(o.id > max(begin_after, position) AND `+notSkipped+`, 0)
		FROM outbox_cursors c LEFT JOIN outbox o ON o.event_id = ? ORDER BY name`, event)
}

// explained finds the job of this id, or that of the event, or nil.
func (x explainer) explained(ctx context.Context, id string) (*storedJob, error) {
	for _, condition := range []string{
		"id = ?",
		"id IN (SELECT name || '/' || ? FROM outbox_cursors)", // parked
		"event_id = ?",
	} {
		jobs, err := jobsBy(ctx, x.tx, condition+" ORDER BY seq DESC LIMIT 1", id)
		if err != nil || len(jobs) > 0 {
			return append(jobs, nil)[0], err
		}
	}
	return nil, nil
}

// causes tells what a job waits for, the nearest first.
func (x explainer) causes(ctx context.Context, j *storedJob) ([]core.Cause, error) {
	failure := j.failure.Code + ": " + j.failure.Reason
	switch j.state {
	case core.JobCompleted:
		if j.discarded {
			return []core.Cause{{Code: core.CauseDiscarded, Text: "a person discarded it at " + clockText(timeOf(j.finishedAt)) +
				": it is not delivered; `outbox acts` tells who did that"}}, nil
		}
		text := "it was delivered at " + clockText(timeOf(j.finishedAt))
		if j.result != "" {
			text += ": " + j.result
		}
		return []core.Cause{{Code: core.CauseDelivered, Text: text}}, nil
	case core.JobFailed:
		text := fmt.Sprintf("%s (after %d attempts, at %s); retry or discard it", failure, j.attempts, clockText(timeOf(j.failedAt)))
		if j.holds {
			text += ": until then the later events of its key wait"
		}
		return []core.Cause{{Code: core.CauseFailed, Text: text, Until: timeOf(j.expireAt)}}, nil
	case core.JobUnknown:
		return []core.Cause{{Code: core.CauseUnknown, Text: failure + "; it may have been delivered: retry or discard it"}}, nil
	case core.JobActive:
		until := timeOf(j.leaseUntil)
		text := "leased by " + cmp.Or(j.owner, "a worker without a name") + " until " + clockText(until)
		if until.Before(x.now) {
			text += ", which is over: it is taken back by the next worker that looks"
		}
		return []core.Cause{{Code: core.CauseLeased, Text: text, Until: until}}, nil
	case core.JobReady:
	}
	causes, err := x.holding(ctx, j)
	if err != nil {
		return nil, err
	}
	due := time.UnixMilli(j.availableAt).UTC()
	switch {
	case due.After(x.now) && (j.attempts > 0 || j.redeliveries > 0 || j.failure.Code != "" && !j.redriven):
		causes = append(causes, core.Cause{Code: core.CauseBackoff, Until: due, Text: fmt.Sprintf(
			"attempt %d ended with %s; it is tried again at %s; retry it by its id to try now", j.attempts, failure, clockText(due))})
	case due.After(x.now):
		causes = append(causes, core.Cause{
			Code: core.CauseDelayed, Until: due,
			Text: "it is not due before " + clockText(due) + "; retry it by its id to make it due now",
		})
	case len(causes) == 0 && j.cursor.Valid:
		causes = append(causes, core.Cause{Code: core.CauseDue, Text: fmt.Sprintf(
			"it is due since %s: the holder of cursor %q delivers it next", clockText(j.waitsSince()), j.cursor.String)})
	case len(causes) == 0:
		causes = append(causes, core.Cause{Code: core.CauseDue, Text: fmt.Sprintf(
			"it is due since %s: a worker of the sink %q takes it next; if none does, none runs, or the ones that do are busy",
			clockText(j.waitsSince()), j.sink)})
	}
	return causes, nil
}

// holding are the causes that lie outside a job: one that comes first, a cursor
// that nobody holds, and pauses.
func (x explainer) holding(ctx context.Context, j *storedJob) (causes []core.Cause, err error) {
	if j.cursor.Valid && j.AggregateID != "" {
		first, err := jobsBy(ctx, x.tx, "cursor = ? AND aggregate_id = ? AND position < ? AND "+isOpen+" ORDER BY position LIMIT 1",
			j.cursor.String, j.AggregateID, j.position.Int64)
		if err != nil {
			return nil, err
		}
		if len(first) > 0 {
			causes = append(causes, predecessor(first[0]))
		}
	}
	if j.cursor.Valid {
		c := runningCursor{name: j.cursor.String}
		for _, one := range x.cursors {
			if one.name == c.name {
				c = one
			}
		}
		if !c.until.After(x.now) {
			causes = append(causes, stopped(c))
		}
	}
	for _, p := range x.pauses {
		if p.Scope == core.PauseSink && p.Name == j.sink || p.Scope == core.PauseTenant && p.Name == j.Tenant && !j.cursor.Valid {
			causes = append(causes, pausedBy(p))
		}
	}
	return causes, nil
}

// explainEvent tells which cursors have still to pass an event.
func (x explainer) explainEvent(ctx context.Context, id string, published time.Time) (core.Explanation, error) {
	e := core.Explanation{ID: id, State: "waiting"}
	if len(x.cursors) == 0 {
		e.Causes = []core.Cause{{Code: core.CauseCursorStopped, Text: "there is no cursor: none has run, or the last one was forgotten; start a relay"}}
		return e, nil
	}
	for _, c := range x.cursors {
		if !c.behind {
			continue
		}
		for _, p := range x.pauses {
			if p.Scope == core.PauseSink && p.Name == c.sink {
				cause := pausedBy(p)
				cause.Text = fmt.Sprintf("cursor %q waits: %s", c.name, cause.Text)
				e.Causes = append(e.Causes, cause)
			}
		}
		if !c.until.After(x.now) {
			e.Causes = append(e.Causes, stopped(c))
			continue
		}
		lag, err := lagOf(ctx, x.tx, c.name)
		if err != nil {
			return e, err
		}
		e.Causes = append(e.Causes, core.Cause{Code: core.CauseBehind, Text: fmt.Sprintf(
			"cursor %q, run by %s, has not passed it: %d events are before its end, the oldest %s old",
			c.name, c.owner, lag.Events, lag.Age.Round(time.Second))})
	}
	if len(e.Causes) == 0 {
		text := "every cursor has passed it"
		if !published.IsZero() {
			text += "; it is marked as published at " + clockText(published)
		}
		e.State = "delivered"
		e.Causes = []core.Cause{{Code: core.CauseDelivered, Text: text}}
	}
	return e, nil
}

func predecessor(first *storedJob) core.Cause {
	text := fmt.Sprintf("job %s of the same key comes first and is %s", first.id, first.state)
	if first.failure.Code != "" {
		text += fmt.Sprintf(" (%s: %s)", first.failure.Code, first.failure.Reason)
	}
	switch first.state {
	case core.JobActive:
		text += fmt.Sprintf(", leased by %s until %s", cmp.Or(first.owner, "a worker without a name"), clockText(timeOf(first.leaseUntil)))
	case core.JobFailed:
		text += "; it holds the key until somebody retries or discards it"
	default:
		text += ", due at " + clockText(first.waitsSince())
	}
	return core.Cause{Code: core.CausePredecessor, Text: text}
}

func stopped(c runningCursor) core.Cause {
	text := fmt.Sprintf("nobody runs cursor %q: start its relay", c.name)
	if c.owner != "" {
		text = fmt.Sprintf("nobody runs cursor %q: %s had it until %s; start its relay", c.name, c.owner, clockText(c.until))
	}
	return core.Cause{Code: core.CauseCursorStopped, Text: text}
}

func pausedBy(p core.Pause) core.Cause {
	text := fmt.Sprintf("%s %q is paused", p.Scope, p.Name)
	if p.Until.IsZero() {
		text += " until somebody resumes it"
	} else {
		text += " until " + clockText(p.Until)
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return core.Cause{Code: core.CausePaused, Text: text, Until: p.Until}
}

// clockText writes a time for people.
func clockText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
