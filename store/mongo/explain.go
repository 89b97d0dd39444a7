package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// Explain tells why something has not gone out, see core.Admin. An event with a
// job is explained by its job; without one it counts as delivered when every
// cursor has passed the time of its insert.
func (s *Store) Explain(ctx context.Context, id string) (core.Explanation, error) {
	var e core.Explanation
	err := s.exists(ctx)
	if err == nil {
		e, err = s.explain(withoutSession(ctx), id)
	}
	if err != nil {
		return core.Explanation{}, fmt.Errorf("explaining %s: %w", id, err)
	}
	return e, nil
}

func (s *Store) explain(ctx context.Context, id string) (core.Explanation, error) {
	now, err := s.now(ctx)
	if err != nil {
		return core.Explanation{}, err
	}
	job, err := s.explained(ctx, id)
	if err != nil {
		return core.Explanation{}, err
	}
	if job != nil {
		causes, err := s.causes(ctx, job, now)
		info := job.info()
		return core.Explanation{ID: id, State: string(job.state), Causes: causes, Job: &info}, err
	}
	var raw bson.Raw
	raw, err = s.log.FindOne(ctx, bson.D{{Key: s.cfg.Fields.ID, Value: op("$in", valuesNamed(id))}},
		options.FindOne().SetProjection(bson.D{{Key: s.cfg.Fields.Payload, Value: 0}})).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return core.Explanation{}, core.ErrNoJob
	case err != nil:
		return core.Explanation{}, err
	}
	return s.explainEvent(ctx, id, raw, now)
}

// explained finds the job of this id, or that of the event, or nil.
func (s *Store) explained(ctx context.Context, id string) (*readJob, error) {
	queries := []bson.D{{anyJob, {Key: "_id", Value: op("$in", s.idsNamed(id))}}}
	// A parked event has the event's id within its own.
	docs, err := s.allCursors(ctx)
	if err != nil {
		return nil, err
	}
	parked := bson.A{}
	for _, doc := range docs {
		parked = append(parked, s.idsNamed(doc.Name+"/"+id)...)
	}
	if len(parked) > 0 {
		queries = append(queries, bson.D{anyJob, {Key: "_id", Value: op("$in", parked)}})
	}
	queries = append(queries, bson.D{anyJob, {Key: "event_id", Value: id}})
	for _, query := range queries {
		jobs, err := s.jobsBy(ctx, query, 1)
		if err != nil {
			return nil, err
		}
		if len(jobs) > 0 {
			return &jobs[0], nil
		}
	}
	return nil, nil
}

// causes tells what a job waits for, the nearest first.
func (s *Store) causes(ctx context.Context, j *readJob, now time.Time) ([]core.Cause, error) {
	failure := j.failure.Code + ": " + j.failure.Reason
	switch j.state {
	case core.JobCompleted:
		if j.discarded {
			return []core.Cause{{Code: core.CauseDiscarded, Text: "a person discarded it at " + clockText(j.finishedAt) +
				": it is not delivered; `outbox acts` tells who did that"}}, nil
		}
		text := "it was delivered at " + clockText(j.finishedAt)
		if j.result != "" {
			text += ": " + j.result
		}
		return []core.Cause{{Code: core.CauseDelivered, Text: text}}, nil
	case core.JobFailed:
		text := fmt.Sprintf("%s (after %d attempts, at %s); retry or discard it", failure, j.attempts, clockText(j.failure.At))
		if j.holds() {
			text += ": until then the later events of its key wait"
		}
		return []core.Cause{{Code: core.CauseFailed, Text: text, Until: j.expireAt}}, nil
	case core.JobUnknown:
		return []core.Cause{{Code: core.CauseUnknown, Text: failure + "; it may have been delivered: retry or discard it"}}, nil
	case core.JobActive:
		text := "leased by " + cmp.Or(j.owner, "a worker without a name") + " until " + clockText(j.leaseUntil)
		if j.leaseUntil.Before(now) {
			text += ", which is over: it is taken back by the next worker that looks"
		}
		return []core.Cause{{Code: core.CauseLeased, Text: text, Until: j.leaseUntil}}, nil
	case core.JobReady:
	}
	causes, err := s.holding(ctx, j, now)
	if err != nil {
		return nil, err
	}
	switch {
	case j.availableAt.After(now) && (j.attempts > 0 || j.redeliveries > 0 || j.failure.Code != "" && !j.redriven):
		causes = append(causes, core.Cause{
			Code: core.CauseBackoff, Text: fmt.Sprintf("attempt %d ended with %s; it is tried again at %s; retry it by its id to try now", j.attempts, failure, clockText(j.availableAt)),
			Until: j.availableAt,
		})
	case j.availableAt.After(now):
		causes = append(causes, core.Cause{Code: core.CauseDelayed, Text: "it is not due before " + clockText(j.availableAt) +
			"; retry it by its id to make it due now", Until: j.availableAt})
	case len(causes) == 0 && j.cursor != "":
		causes = append(causes, core.Cause{Code: core.CauseDue, Text: fmt.Sprintf(
			"it is due since %s: the holder of cursor %q delivers it next", clockText(j.availableAt), j.cursor)})
	case len(causes) == 0:
		causes = append(causes, core.Cause{Code: core.CauseDue, Text: fmt.Sprintf(
			"it is due since %s: a worker of the sink %q takes it next; if none does, none runs, or the ones that do are busy",
			clockText(j.availableAt), j.sink)})
	}
	return causes, nil
}

// holding are the causes that lie outside a job: one that comes first, a cursor
// that nobody holds, and pauses.
func (s *Store) holding(ctx context.Context, j *readJob, now time.Time) ([]core.Cause, error) {
	var causes []core.Cause
	if j.cursor != "" && !j.positionTime.IsZero() && !j.positionOrdinal.IsZero() && j.event.AggregateID != "" {
		first, err := s.jobsBy(ctx, bson.D{
			{Key: "cursor", Value: j.cursor},
			{Key: "open", Value: true},
			{Key: "aggregate_id", Value: j.event.AggregateID},
			{Key: "$expr", Value: op("$lt", bson.A{
				bson.A{"$position.time", "$position.ordinal"}, bson.A{literal(j.positionTime), literal(j.positionOrdinal)},
			})},
		}, 1)
		if err != nil {
			return nil, err
		}
		if len(first) > 0 {
			causes = append(causes, predecessor(&first[0]))
		}
	}
	if j.cursor != "" {
		stopped, err := s.unheld(ctx, j.cursor, now)
		if err != nil {
			return nil, err
		}
		causes = append(causes, stopped...)
	}
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pauses {
		if (p.Scope == core.PauseSink && p.Name == j.sink) || (p.Scope == core.PauseTenant && p.Name == j.event.Tenant && j.cursor == "") {
			causes = append(causes, pausedBy(p))
		}
	}
	return causes, nil
}

func predecessor(first *readJob) core.Cause {
	text := fmt.Sprintf("job %s of the same key comes first and is %s", jobName(first.id), first.state)
	if first.failure.Code != "" {
		text += fmt.Sprintf(" (%s: %s)", first.failure.Code, first.failure.Reason)
	}
	switch first.state {
	case core.JobActive:
		text += fmt.Sprintf(", leased by %s until %s", cmp.Or(first.owner, "a worker without a name"), clockText(first.leaseUntil))
	case core.JobFailed:
		text += "; it holds the key until somebody retries or discards it"
	default:
		text += ", due at " + clockText(first.availableAt)
	}
	return core.Cause{Code: core.CausePredecessor, Text: text}
}

// unheld tells if nobody holds the cursor, whose jobs are delivered by its holder
// alone.
func (s *Store) unheld(ctx context.Context, name string, now time.Time) ([]core.Cause, error) {
	docs, err := s.allCursors(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(docs, func(d cursorDoc) bool { return d.Name == name })
	switch {
	case i < 0:
		return []core.Cause{stopped(cursorDoc{Name: name})}, nil
	case docs[i].LeaseUntil.Time().After(now):
		return nil, nil
	}
	return []core.Cause{stopped(docs[i])}, nil
}

func stopped(doc cursorDoc) core.Cause {
	text := fmt.Sprintf("nobody runs cursor %q: start its relay", doc.Name)
	if doc.Owner != "" {
		text = fmt.Sprintf("nobody runs cursor %q: %s had it until %s; start its relay", doc.Name, doc.Owner, clockText(doc.LeaseUntil.Time()))
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

// explainEvent tells which cursors have still to pass an event.
func (s *Store) explainEvent(ctx context.Context, id string, raw bson.Raw, now time.Time) (core.Explanation, error) {
	docs, err := s.allCursors(ctx)
	if err != nil {
		return core.Explanation{}, err
	}
	slices.SortFunc(docs, func(a, b cursorDoc) int { return cmp.Compare(a.Name, b.Name) })
	e := core.Explanation{ID: id, State: "waiting"}
	if published, ok := momentOf(raw.Lookup(s.cfg.Fields.PublishedAt)); ok {
		e.State = "delivered"
		e.Causes = []core.Cause{{Code: core.CauseDelivered, Text: "it is marked as published at " + clockText(published)}}
		return e, nil
	}
	if len(docs) == 0 {
		e.Causes = []core.Cause{{Code: core.CauseCursorStopped, Text: "there is no cursor: none has run, or the last one was forgotten; start a relay"}}
		return e, nil
	}
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return e, err
	}
	seq := seqOf(raw, s.cfg.Fields)
	for _, doc := range docs {
		if passed(doc, seq) {
			continue
		}
		for _, p := range pauses {
			if p.Scope == core.PauseSink && p.Name == doc.Sink {
				cause := pausedBy(p)
				cause.Text = fmt.Sprintf("cursor %q waits: %s", doc.Name, cause.Text)
				e.Causes = append(e.Causes, cause)
			}
		}
		cause, err := s.behind(ctx, doc, now)
		if err != nil {
			return e, err
		}
		e.Causes = append(e.Causes, cause)
	}
	if len(e.Causes) == 0 {
		e.State = "delivered"
		e.Causes = []core.Cause{{Code: core.CauseDelivered, Text: "every cursor has passed it"}}
	}
	return e, nil
}

// seqOf is when a document was inserted, as far as it tells.
func seqOf(raw bson.Raw, f Fields) bson.Timestamp {
	if t, i, ok := raw.Lookup(f.Seq).TimestampOK(); ok {
		return bson.Timestamp{T: t, I: i}
	}
	occurred, _ := momentOf(raw.Lookup(f.OccurredAt))
	return bson.Timestamp{T: uint32(max(0, occurred.Unix()))} //nolint:gosec // until 2106
}

// passed tells whether a cursor has come to what was inserted then. What a long
// transaction inserted may come later than that.
func passed(doc cursorDoc, seq bson.Timestamp) bool {
	if !doc.From.IsZero() && seq.Before(doc.From) {
		return true // it began later
	}
	if doc.Scan != nil {
		return !doc.Scan.Seq.Before(seq)
	}
	return !doc.Position.Time.Before(seq)
}

func (s *Store) behind(ctx context.Context, doc cursorDoc, now time.Time) (core.Cause, error) {
	if !doc.LeaseUntil.Time().After(now) {
		return stopped(doc), nil
	}
	lag, err := s.Lag(ctx, doc.Name)
	if err != nil {
		return core.Cause{}, err
	}
	return core.Cause{Code: core.CauseBehind, Text: fmt.Sprintf(
		"cursor %q, run by %s, has not passed it: %d events are before its end, the oldest %s old",
		doc.Name, doc.Owner, lag.Events, lag.Age.Round(time.Second))}, nil
}

// clockText writes a time for people.
func clockText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
