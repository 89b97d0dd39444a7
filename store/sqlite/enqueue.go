package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/gooutbox/outbox/core"
)

// Enqueue adds jobs to the queue in the caller's transaction: all of them or,
// with an error, none. It returns a receipt for each, in their order. The rules
// are those of Append; invalid jobs match core.ErrInvalidJob.
//
// A job with a DedupKey has an id that is made of the configured namespace, its
// tenant and the key. Where a job with that id is kept, it is left as it is, and
// the receipt tells of the duplicate; also one that the same transaction
// enqueued.
func (s *Store) Enqueue(ctx context.Context, tx *sql.Tx, jobs ...core.Job) ([]core.Receipt, error) {
	err := s.validateJobs(jobs)
	if tx == nil {
		err = core.ErrNoTransaction
	}
	var receipts []core.Receipt
	if err == nil && len(jobs) > 0 {
		if receipts, err = s.enqueue(ctx, tx, jobs); err != nil {
			s.fail(tx, fmt.Errorf("enqueuing jobs: %w", err))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	fresh := int64(0)
	for _, r := range receipts {
		if !r.Duplicate {
			fresh++
		}
	}
	s.metrics.count(ctx, s.metrics.enqueued, fresh)
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

func (s *Store) enqueue(ctx context.Context, tx *sql.Tx, jobs []core.Job) ([]core.Receipt, error) {
	receipts := make([]core.Receipt, len(jobs))
	trace := s.traceHeaders(ctx)
	err := savepoint(ctx, tx, func() error {
		insert, err := tx.PrepareContext(ctx, `INSERT INTO outbox_jobs (id, `+eventColumns+`, payload, sink, rank, dedup_key, hash, hash_key,
			max_attempts, available_at) VALUES (`+places(22)+`) ON CONFLICT (id) DO NOTHING`)
		if err != nil {
			return strange(err)
		}
		defer insert.Close() //nolint:errcheck // it ends with the transaction
		for i, job := range jobs {
			id, err := s.jobID(&job)
			if err != nil {
				return err
			}
			hash := s.hashJob(&job)
			stored, err := s.encode(ctx, s.complete(job.Event, id, trace))
			if err != nil {
				return err
			}
			if job.DedupKey != "" {
				// One whose time is over is as good as gone.
				if _, err := tx.ExecContext(ctx, "DELETE FROM outbox_jobs WHERE id = ? AND expire_at <= "+sqlNow, id); err != nil {
					return err
				}
			}
			available := int64(0) // from the beginning
			if !job.NotBefore.IsZero() {
				available = max(0, ceilMillis(job.NotBefore))
			}
			args := append(append([]any{id}, stored.values()...), stored.Payload, job.Sink, job.Priority.Rank(), job.DedupKey,
				hash.sum, hash.key, orDefault(job.MaxAttempts, core.DefaultMaxAttempts), available)
			n, err := affected(insert.ExecContext(ctx, args...))
			if err != nil {
				return err
			}
			receipts[i].ID = id
			if n == 0 {
				if receipts[i], err = s.duplicate(ctx, tx, id, hash); err != nil {
					return err
				}
			}
		}
		return s.checkTransaction(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

// duplicate tells of the job that has the id already.
func (s *Store) duplicate(ctx context.Context, tx *sql.Tx, id string, hash contentHash) (core.Receipt, error) {
	r := core.Receipt{ID: id, Duplicate: true}
	var there contentHash
	err := tx.QueryRowContext(ctx, "SELECT state, hash, hash_key FROM outbox_jobs WHERE id = ?", id).Scan(&r.State, &there.sum, &there.key)
	r.Mismatch = hash.differs(there)
	return r, err
}

// jobID is the id of a new job: by its key if it has one, as the UUIDv5 of
// tenant and key, with a zero byte between them, in the namespace, which is
// itself the UUIDv5 of its name among URLs. Neither tenant nor key holds a zero
// byte.
func (s *Store) jobID(job *core.Job) (string, error) {
	if job.DedupKey == "" {
		return newID()
	}
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte(s.cfg.IDNamespace))
	return uuid.NewSHA1(space, []byte(job.Tenant+"\x00"+job.DedupKey)).String(), nil
}
