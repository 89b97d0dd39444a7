package memory

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Extend gives jobs a whole lease again, see core.Queue.
func (s *Store) Extend(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpExtend)); err != nil {
		return nil, fmt.Errorf("extending leases: %w", err)
	}
	if lease <= 0 {
		lease = core.DefaultJobLease
	}
	lost := s.extend(jobs, lease)
	if err := s.lost(OpExtend); err != nil {
		return nil, fmt.Errorf("extending leases: %w", err)
	}
	return lost, nil
}

func (s *Store) extend(jobs []*core.Claimed, lease time.Duration) (lost []*core.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range jobs {
		j := s.held(c)
		if j == nil || j.state != core.JobActive {
			lost = append(lost, c)
			continue
		}
		j.leaseUntil = s.cfg.Now().Add(lease)
	}
	return lost
}

// Settle writes what became of jobs, see core.Queue.
func (s *Store) Settle(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
	for _, one := range settlements {
		if one.Kind < core.Complete || one.Kind > core.GiveBack {
			return nil, fmt.Errorf("settling job %s: there is no kind %d", one.Job.ID, one.Kind)
		}
	}
	if err := cmp.Or(ctx.Err(), s.fault(OpSettle)); err != nil {
		return nil, fmt.Errorf("settling jobs: %w", err)
	}
	lost := s.settle(settlements)
	if err := s.lost(OpSettle); err != nil {
		return nil, fmt.Errorf("settling jobs: %w", err)
	}
	return lost, nil
}

func (s *Store) settle(settlements []core.Settlement) (lost []*core.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range settlements {
		switch j := s.held(one.Job); {
		case j == nil:
			lost = append(lost, one.Job)
		case j.state == core.JobActive: // else this lease has settled it before
			s.apply(j, one)
		}
	}
	return lost
}

// apply does what the settlement says to the job. The caller holds mu.
func (s *Store) apply(j *job, one core.Settlement) {
	now := s.cfg.Now()
	if one.Kind != core.GiveBack && (one.Kind != core.Retry || !one.Uncounted) {
		j.attempts++
	}
	if one.Failure != (core.Failure{}) {
		j.failure, j.failedAt = cutFailure(one.Failure), now
	}
	switch one.Kind {
	case core.Complete:
		j.state, j.finishedAt, j.expireAt = core.JobCompleted, now, now.Add(s.cfg.CompletedRetention)
		j.result, j.Payload = one.Receipt, nil
	case core.Retry:
		j.redelivered = j.redelivered || one.Failure.Code == core.CodeUnknown
		j.availableAt = now.Add(one.Delay)
		s.release(j)
	case core.GiveBack:
		if one.Delay > 0 {
			j.availableAt = now.Add(one.Delay)
		}
		s.release(j)
	case core.Fail:
		j.holds = one.Holds && j.cursor != ""
		s.endFailed(j, now)
	case core.EndUnknown:
		j.state, j.finishedAt = core.JobUnknown, now
	}
}

// release makes a job ready again. The caller holds mu.
func (s *Store) release(j *job) {
	j.state = core.JobReady
	s.tell(core.Wake{Sink: j.Sink})
}

// endFailed gives a job up. The caller holds mu.
func (s *Store) endFailed(j *job, now time.Time) {
	j.state, j.finishedAt = core.JobFailed, now
	if j.cursor == "" {
		j.expireAt = now.Add(s.cfg.FailedRetention)
	}
}

// CleanJobs removes failed jobs whose retention ended, see core.Queue, and,
// uncounted, completed ones.
func (s *Store) CleanJobs(ctx context.Context) (int64, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpCleanJobs)); err != nil {
		return 0, fmt.Errorf("cleaning jobs: %w", err)
	}
	return s.cleanJobs(), s.lost(OpCleanJobs)
}

func (s *Store) cleanJobs() (removed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, j := range s.queue.jobs {
		if s.kept(id) != nil {
			continue
		}
		delete(s.queue.jobs, id)
		if j.state == core.JobFailed {
			removed++
		}
	}
	return removed
}
