package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// takeBackLimit is TakeBackRequest.Limit where none is given.
const takeBackLimit = 1000

// TakeBack ends leases that ran out, see core.Queue.
func (s *Store) TakeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpTakeBack)); err != nil {
		return core.TakeBackResult{}, fmt.Errorf("taking jobs back: %w", err)
	}
	if req.MaxRedeliveries == 0 {
		req.MaxRedeliveries = core.DefaultMaxRedeliveries
	}
	if req.Limit <= 0 {
		req.Limit = takeBackLimit
	}
	overdue := s.overdue(req)
	sent, err := mayBeSent(ctx, req, overdue)
	result, ended := s.endLeases(req, overdue, sent)
	for _, e := range ended {
		if req.Ended != nil {
			req.Ended(e.id, e.as)
		}
	}
	if err = cmp.Or(err, s.lost(OpTakeBack)); err != nil {
		return result, fmt.Errorf("taking jobs back: %w", err)
	}
	return result, nil
}

// lapse is a lease that ran out.
type lapse struct {
	ref
	sink string
}

// overdue returns the leases that ended longest ago.
func (s *Store) overdue(req core.TakeBackRequest) []lapse {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []*job
	for _, j := range s.queue.jobs {
		if s.lapsed(j) && (req.Sinks == nil || slices.Contains(req.Sinks, j.Sink) || j.cursor != "" && slices.Contains(req.Cursors, j.cursor)) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(a.leaseUntil.Compare(b.leaseUntil), cmp.Compare(a.seq, b.seq))
	})
	var found []lapse
	for _, j := range jobs[:min(req.Limit, len(jobs))] {
		found = append(found, lapse{ref{j.id, j.token}, j.Sink})
	}
	return found
}

// lapsed tells whether the job's lease may be taken back. The caller holds mu.
func (s *Store) lapsed(j *job) bool {
	return j.state == core.JobActive && s.cfg.Now().Sub(j.leaseUntil) > core.TakeBackGrace
}

// mayBeSent tells of each job of a NoRepeat sink whether it may have been sent.
// Those that it doesn't name must be left alone when it returns an error.
func mayBeSent(ctx context.Context, req core.TakeBackRequest, overdue []lapse) (map[string]bool, error) {
	var ids []string
	for _, l := range overdue {
		if slices.Contains(req.NoRepeat, l.sink) {
			ids = append(ids, l.id)
		}
	}
	sent := make(map[string]bool, len(ids))
	if len(ids) == 0 {
		return sent, nil
	}
	var reserved map[string]bool
	if req.Reservations != nil {
		var err error
		if reserved, err = req.Reservations.Reserved(ctx, ids); err != nil {
			return sent, fmt.Errorf("asking what was sent: %w", err)
		}
	}
	for _, id := range ids {
		sent[id] = req.Reservations == nil || reserved[id]
	}
	return sent, nil
}

// end is a job that was ended rather than made ready.
type end struct {
	id string
	as core.JobState
}

// endLeases takes back what is still as it was found.
func (s *Store) endLeases(req core.TakeBackRequest, overdue []lapse, sent map[string]bool) (result core.TakeBackResult, ended []end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range overdue {
		j := s.queue.jobs[l.id]
		if j == nil || j.token != l.token || !s.lapsed(j) {
			continue // extended, settled, or another's by now
		}
		maySent, asked := sent[l.id]
		if !asked && slices.Contains(req.NoRepeat, l.sink) {
			continue
		}
		now := s.cfg.Now()
		j.token = 0
		switch {
		case maySent:
			result.Unknown++
			ended = append(ended, end{j.id, core.JobUnknown})
			j.state, j.finishedAt = core.JobUnknown, now
			j.setFailure(core.CodeUnknown, "the lease ran out after the delivery may have begun", now)
		case j.redeliveries >= req.MaxRedeliveries:
			result.Crashed++
			ended = append(ended, end{j.id, core.JobFailed})
			j.setFailure(core.CodeCrashed, fmt.Sprintf("the lease ran out %d times", j.redeliveries+1), now)
			s.endFailed(j, now)
		default:
			result.Ready++
			j.redeliveries++
			j.redelivered = true
			j.availableAt = now
			s.release(j)
		}
	}
	return result, ended
}

func (j *job) setFailure(code, reason string, now time.Time) {
	j.failure, j.failedAt = core.Failure{Code: code, Reason: reason}, now
}
