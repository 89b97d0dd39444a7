package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gooutbox/outbox/core"
)

// Explain tells why something has not gone out, see core.Admin. An event with a
// job is explained by its job; without one it counts as delivered when every
// cursor has passed it.
func (s *Store) Explain(ctx context.Context, id string) (core.Explanation, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
		return core.Explanation{}, fmt.Errorf("explaining %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.explained(id); j != nil {
		info := j.info()
		return core.Explanation{ID: id, State: string(j.state), Causes: s.causes(j), Job: &info}, nil
	}
	if d := s.ids[id]; d != nil {
		return s.explainEvent(d), nil
	}
	return core.Explanation{}, fmt.Errorf("explaining %s: %w", id, core.ErrNoJob)
}

// explained finds the job of this id, or that of the event. The caller holds
// mu.
func (s *Store) explained(id string) *job {
	if j := s.queue.jobs[id]; j != nil {
		return j
	}
	var found *job
	for _, j := range s.queue.jobs {
		if j.ID == id && (found == nil || found.seq < j.seq) {
			found = j
		}
	}
	return found
}

// causes tells what a job waits for, the nearest first. The caller holds mu.
func (s *Store) causes(j *job) []core.Cause {
	failure := fmt.Sprintf("%s: %s", j.failure.Code, j.failure.Reason)
	switch j.state {
	case core.JobCompleted:
		if j.discarded {
			return []core.Cause{{Code: core.CauseDiscarded, Text: "a person discarded it"}}
		}
		return []core.Cause{{Code: core.CauseDelivered, Text: "it was delivered: " + j.result}}
	case core.JobFailed:
		return []core.Cause{{Code: core.CauseFailed, Text: failure + "; retry or discard it"}}
	case core.JobUnknown:
		return []core.Cause{{Code: core.CauseUnknown, Text: failure + "; retry it or leave it"}}
	case core.JobActive:
		return []core.Cause{{Code: core.CauseLeased, Text: "leased by " + j.owner, Until: j.leaseUntil}}
	}
	var causes []core.Cause
	if first := s.predecessor(j); first != nil {
		causes = append(causes, core.Cause{
			Code: core.CausePredecessor,
			Text: fmt.Sprintf("job %s of the same key comes first and is %s", first.id, first.state),
		})
	}
	for _, p := range s.pauses() {
		if p.Scope == core.PauseSink && p.Name == j.Sink || p.Scope == core.PauseTenant && p.Name == j.Tenant && j.cursor == "" {
			causes = append(causes, pausedBy(p))
		}
	}
	switch now := s.cfg.Now(); {
	case !j.due(now) && j.attempts+j.redeliveries > 0:
		causes = append(causes, core.Cause{Code: core.CauseBackoff, Text: "it waits after " + failure + "; retry it by its id to try now", Until: j.availableAt})
	case !j.due(now):
		causes = append(causes, core.Cause{Code: core.CauseDelayed, Text: "it is not due yet; retry it by its id to make it due now", Until: j.availableAt})
	case len(causes) == 0:
		causes = append(causes, core.Cause{Code: core.CauseDue, Text: "it is due: a worker of its sink takes it next"})
	}
	return causes
}

func pausedBy(p core.Pause) core.Cause {
	return core.Cause{
		Code: core.CausePaused, Text: fmt.Sprintf("%s %s is paused: %s", p.Scope, p.Name, p.Reason), Until: p.Until,
	}
}

// predecessor is the first job of the same cursor and key that comes before j and
// is open or holds the key.
// The caller holds mu.
func (s *Store) predecessor(j *job) *job {
	var first *job
	for _, other := range s.queue.jobs {
		if j.cursor == "" || other.cursor != j.cursor || other.AggregateID != j.AggregateID || !other.open() ||
			other.position.Compare(j.position) >= 0 {
			continue
		}
		if first == nil || other.position.Compare(first.position) < 0 {
			first = other
		}
	}
	return first
}

// explainEvent tells which cursors have still to pass the event. The caller
// holds mu.
func (s *Store) explainEvent(d *document) core.Explanation {
	now := s.cfg.Now()
	var causes []core.Cause
	for _, c := range s.cursors {
		if d.pos.Compare(c.after()) <= 0 || c.skips(d) {
			continue
		}
		cause := core.Cause{Code: core.CauseBehind, Text: fmt.Sprintf("cursor %s has not come to it yet", c.name)}
		if !now.Before(c.leaseUntil) {
			cause = core.Cause{Code: core.CauseCursorStopped, Text: fmt.Sprintf("nobody runs cursor %s", c.name)}
		}
		causes = append(causes, cause)
		for _, p := range s.pauses() {
			if p.Scope == core.PauseSink && p.Name == c.sink {
				paused := pausedBy(p)
				paused.Text = fmt.Sprintf("cursor %s waits: %s", c.name, paused.Text)
				causes = append(causes, paused)
			}
		}
	}
	state := "waiting"
	if len(s.cursors) == 0 {
		causes = []core.Cause{{Code: core.CauseCursorStopped, Text: "there is no cursor: none has run, or the last one was forgotten"}}
	} else if len(causes) == 0 {
		state = "delivered"
		causes = []core.Cause{{Code: core.CauseDelivered, Text: "every cursor has passed it"}}
	}
	slices.SortFunc(causes, func(a, b core.Cause) int { return cmp.Compare(a.Text, b.Text) })
	return core.Explanation{ID: d.event.ID, State: state, Causes: causes}
}
