package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// Enqueue adds jobs to the queue in the transaction that ctx carries: all of
// them or, with an error, none. It returns a receipt for each, in their order. A
// job whose DedupKey another one of the same tenant has, also one of the same
// transaction, is told as a duplicate and not written. The caller keeps the
// jobs and may change them.
//
// The transaction goes on when the error is core.ErrNoTransaction or matches
// core.ErrInvalidJob, which holds a *core.FieldError for each problem.
func (s *Store) Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	t, err := s.running(ctx)
	if err != nil {
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	if err := s.validateJobs(jobs); err != nil {
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	var receipts []core.Receipt
	err = s.fault(OpEnqueue)
	if err == nil {
		receipts, err = s.addJobs(t, jobs)
	}
	if err == nil {
		err = s.lost(OpEnqueue)
	}
	if err != nil {
		s.fail(t, err)
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	return receipts, nil
}

// validateJobs reports all problems of all jobs.
func (s *Store) validateJobs(jobs []core.Job) error {
	var errs []error
	for i := range jobs {
		err := jobs[i].Validate(s.cfg.MaxEventBytes)
		if err != nil && len(jobs) > 1 {
			err = fmt.Errorf("job %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// addJobs puts the jobs into the transaction.
func (s *Store) addJobs(t *transaction, jobs []core.Job) ([]core.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.open {
		return nil, core.ErrNoTransaction
	}
	if t.failed != nil {
		return nil, t.failed
	}
	receipts := make([]core.Receipt, len(jobs))
	for i, one := range jobs {
		j := newJob(one, s.cfg.Now())
		receipts[i].ID = j.id
		if one.DedupKey != "" {
			if there := s.sameKey(t, j.id); there != nil {
				receipts[i].Duplicate, receipts[i].State = true, there.state
				receipts[i].Mismatch = there.hash != j.hash
				continue
			}
		}
		t.jobs = append(t.jobs, j)
	}
	return receipts, nil
}

// sameKey returns the job that has the id already, in the transaction or in the
// store. The caller holds mu.
func (s *Store) sameKey(t *transaction, id string) *job {
	for _, j := range t.jobs {
		if j.id == id {
			return j
		}
	}
	return s.kept(id)
}

// kept returns the job with this id unless its time is over. The caller holds
// mu.
func (s *Store) kept(id string) *job {
	j := s.queue.jobs[id]
	if j == nil || !j.expireAt.IsZero() && !s.cfg.Now().Before(j.expireAt) {
		return nil
	}
	return j
}

// conflicts tells whether a job under one of the ids was committed meanwhile.
// The caller holds mu.
func (s *Store) conflicts(jobs []*job) bool {
	for _, j := range jobs {
		if s.kept(j.id) != nil {
			return true
		}
	}
	return false
}

// commitJobs makes the jobs of a transaction exist. The caller holds mu.
func (s *Store) commitJobs(jobs []*job) {
	for _, j := range jobs {
		s.queue.seq++
		j.seq, j.enqueuedAt = s.queue.seq, s.cfg.Now()
		s.queue.jobs[j.id] = j
		s.tell(core.Wake{Sink: j.Sink})
	}
}

// ForeignJob is a job that didn't come through Enqueue.
type ForeignJob struct {
	// Job is stored as it is, without validation.
	Job core.Job
	// Err makes it a document that can't be decoded, for this reason.
	Err error
}

// PutJob commits jobs as a foreign producer would: without transaction, checks
// and regard to other jobs under the same key.
func (s *Store) PutJob(jobs ...ForeignJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range jobs {
		j := newJob(f.Job, s.cfg.Now())
		if f.Err != nil {
			j.err = core.MarkRejected(f.Err)
		}
		s.commitJobs([]*job{j})
	}
}
