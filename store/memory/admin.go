package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/gooutbox/outbox/core"
)

// OpAdmin is the operation of core.Admin's methods that Config.Fault and
// Config.Lost are told.
const OpAdmin = "admin"

var _ core.Admin = (*Store)(nil)

// Job returns one job, see core.Admin.
func (s *Store) Job(ctx context.Context, id string) (core.JobInfo, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
		return core.JobInfo{}, fmt.Errorf("reading job %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.queue.jobs[id]
	if j == nil {
		return core.JobInfo{}, fmt.Errorf("reading job %s: %w", id, core.ErrNoJob)
	}
	return j.info(), nil
}

// Jobs lists jobs page by page, see core.Admin.
func (s *Store) Jobs(ctx context.Context, filter core.JobFilter, after string, limit int) ([]core.JobInfo, string, error) {
	var last uint64
	var err error
	if after != "" {
		last, err = strconv.ParseUint(after, 10, 64)
	}
	if err = cmp.Or(err, ctx.Err(), s.fault(OpAdmin)); err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page := slices.DeleteFunc(s.matching(filter), func(j *job) bool { return j.seq <= last })
	next := ""
	if limit > 0 && len(page) > limit {
		page = page[:limit]
		next = strconv.FormatUint(page[limit-1].seq, 10)
	}
	var infos []core.JobInfo
	for _, j := range page {
		infos = append(infos, j.info())
	}
	return infos, next, nil
}

// Retry makes final jobs ready again, see core.Admin: failed and unknown ones, and
// those that wait where they are asked for. What was completed has no payload any
// more.
func (s *Store) Retry(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	waiting := len(filter.IDs) > 0 || filter.State == core.JobReady
	return s.act(ctx, "retry", filter, act, func(j *job) bool {
		return j.state == core.JobFailed || j.state == core.JobUnknown ||
			waiting && j.state == core.JobReady && !j.due(s.cfg.Now())
	}, func(jobs []*job) {
		now := s.cfg.Now()
		for i, j := range jobs {
			due := now.Add(act.Spread * time.Duration(i) / time.Duration(len(jobs)))
			if j.state == core.JobReady {
				if due.Before(j.availableAt) {
					j.availableAt = due
				}
				s.release(j)
				continue
			}
			j.redelivered = j.redelivered || j.state == core.JobUnknown || j.failure.Code == core.CodeCrashed
			j.attempts, j.redeliveries, j.redriven, j.token = 0, 0, true, 0
			j.expireAt, j.finishedAt = time.Time{}, time.Time{}
			j.availableAt = due
			s.release(j)
		}
	})
}

// Discard removes jobs that are not active, see core.Admin. One from a cursor
// ends as completed instead, with "discarded" as its result, and is kept for
// ever: its event may be read again, and would be sent, were there no job.
func (s *Store) Discard(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	return s.act(ctx, "discard", filter, act, func(j *job) bool {
		return j.state != core.JobActive && !j.discarded
	}, func(jobs []*job) {
		now := s.cfg.Now()
		for _, j := range jobs {
			if j.cursor == "" {
				delete(s.queue.jobs, j.id)
				continue
			}
			j.discarded, j.holds, j.result, j.Payload = true, false, "discarded", nil
			j.state, j.finishedAt, j.expireAt = core.JobCompleted, now, time.Time{}
			s.tell(core.Wake{Sink: j.Sink}) // its key goes on
		}
	})
}

// act does something to the jobs that match and are eligible, and records it.
func (s *Store) act(ctx context.Context, what string, filter core.JobFilter, act core.Act, eligible func(*job) bool, do func([]*job)) (int64, error) {
	if act.By == "" {
		return 0, fmt.Errorf("%s: say who does it", what)
	}
	if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := slices.DeleteFunc(s.matching(filter), func(j *job) bool { return !eligible(j) })
	if !act.DryRun && len(jobs) > 0 {
		do(jobs)
		s.record(act, what, fmt.Sprintf("%+v", filter), int64(len(jobs)))
	}
	return int64(len(jobs)), s.lost(OpAdmin)
}

// record keeps what was done. The caller holds mu.
func (s *Store) record(act core.Act, what, target string, count int64) {
	s.queue.acts = append(s.queue.acts, core.ActRecord{
		At: s.cfg.Now(), By: act.By, Reason: act.Reason, What: what, Target: target, Count: count,
	})
}

// PauseBy is Pause as an operator's act, see core.Admin.
func (s *Store) PauseBy(ctx context.Context, p core.Pause, act core.Act) error {
	p.By, p.Reason = act.By, cmp.Or(p.Reason, act.Reason)
	return s.actOn(act, "pause", string(p.Scope)+" "+p.Name, func() error { return s.Pause(ctx, p) })
}

// ResumeBy is Resume as an operator's act, see core.Admin.
func (s *Store) ResumeBy(ctx context.Context, target core.PauseTarget, act core.Act) error {
	return s.actOn(act, "resume", string(target.Scope)+" "+target.Name, func() error { return s.Resume(ctx, target) })
}

// ForgetCursor removes a cursor that no longer runs, see core.Admin.
func (s *Store) ForgetCursor(ctx context.Context, name string, act core.Act) error {
	return s.actOn(act, "forget cursor", name, func() error {
		if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.cursors[name]
		if c != nil && s.cfg.Now().Before(c.leaseUntil) {
			return &core.HeldError{Cursor: name, Owner: c.owner, Revision: strconv.FormatUint(c.revision, 10)}
		}
		delete(s.cursors, name)
		return nil
	})
}

// actOn does one thing and records it when it is done.
func (s *Store) actOn(act core.Act, what, target string, do func() error) error {
	if act.By == "" {
		return fmt.Errorf("%s: say who does it", what)
	}
	if act.DryRun {
		return nil
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(act, what, target, 1)
	return nil
}

// Acts lists what operators did, newest first.
func (s *Store) Acts(ctx context.Context, limit int) ([]core.ActRecord, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
		return nil, fmt.Errorf("listing acts: %w", err)
	}
	if limit <= 0 {
		return nil, errors.New("listing acts: say how many at most")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	acts := slices.Clone(s.queue.acts)
	slices.Reverse(acts)
	return acts[:min(limit, len(acts))], nil
}

// matching returns the jobs that the filter selects, oldest first. The caller
// holds mu.
func (s *Store) matching(f core.JobFilter) []*job {
	if reflect.ValueOf(f).IsZero() {
		return nil
	}
	var found []*job
	for _, j := range s.queue.jobs {
		if j.matches(f, s.cfg.Now()) {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, func(a, b *job) int { return cmp.Compare(a.seq, b.seq) })
	return found
}

func (j *job) matches(f core.JobFilter, now time.Time) bool {
	return (f.IDs == nil || slices.Contains(f.IDs, j.id)) &&
		(f.State == "" || f.State == j.state) &&
		(f.Sink == "" || f.Sink == j.Sink) &&
		(f.Tenant == "" || f.Tenant == j.Tenant) &&
		(f.Type == "" || f.Type == j.Type) &&
		(f.Key == "" || f.Key == j.AggregateID) &&
		(f.Cursor == "" || f.Cursor == j.cursor) &&
		(f.OlderThan == 0 || now.Sub(j.enqueuedAt) > f.OlderThan) &&
		(f.Code == "" || f.Code == j.failure.Code)
}

// info shows a job to people.
func (j *job) info() core.JobInfo {
	info := core.JobInfo{
		ID: j.id, EventID: j.ID, Aggregate: j.Aggregate, AggregateID: j.AggregateID, Type: j.Type,
		Tenant: j.Tenant, CorrelationID: j.CorrelationID, Sink: j.Sink, Cursor: j.cursor, State: j.state,
		Priority: j.Priority, Attempts: j.attempts, MaxAttempts: j.MaxAttempts, Redeliveries: j.redeliveries,
		DedupKey: j.DedupKey, EnqueuedAt: j.enqueuedAt, AvailableAt: j.waitsSince(), FinishedAt: j.finishedAt,
		ExpireAt: j.expireAt, Failure: j.failure, FailedAt: j.failedAt, Result: j.result, PayloadBytes: len(j.Payload),
		Holds: j.holds && j.state == core.JobFailed,
	}
	if j.state == core.JobActive {
		info.LeaseUntil, info.Owner = j.leaseUntil, j.owner
	}
	return info
}
