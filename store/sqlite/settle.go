package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// stillHeld selects a job whose lease is the one that its worker has. A lease
// that ran out is good as long as nobody took it back.
const stillHeld = "seq = ? AND token = ? AND state = 'active'"

// Extend gives jobs a whole lease again, see core.Queue.
func (s *Store) Extend(ctx context.Context, jobs []*core.Claimed, lease time.Duration) (lost []*core.Claimed, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		lost = nil
		extend, err := tx.PrepareContext(ctx, "UPDATE outbox_jobs SET lease_until = "+sqlNow+" + ? WHERE "+stillHeld)
		if err != nil {
			return err
		}
		defer extend.Close() //nolint:errcheck // it ends with the transaction
		for _, c := range jobs {
			r, _ := c.Ref.(ref)
			n, err := affected(extend.ExecContext(ctx, millis(orDefault(lease, core.DefaultJobLease)), r.seq, r.token))
			if err != nil {
				return err
			}
			if n == 0 {
				lost = append(lost, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("extending leases: %w", err)
	}
	return lost, nil
}

// Settle writes what became of jobs, in one transaction, see core.Queue.
func (s *Store) Settle(ctx context.Context, settlements []core.Settlement) (lost []*core.Claimed, err error) {
	for _, one := range settlements {
		if one.Kind < core.Complete || one.Kind > core.GiveBack {
			return nil, fmt.Errorf("settling job %s: there is no kind %d", one.Job.ID, one.Kind)
		}
	}
	if len(settlements) == 0 {
		return nil, nil
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		lost = nil
		settling := settling{store: s, tx: tx, prepared: map[string]*sql.Stmt{}}
		defer settling.close()
		for _, one := range settlements {
			held, err := settling.settle(ctx, one)
			if err != nil {
				return err
			}
			if !held {
				lost = append(lost, one.Job)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settling jobs: %w", err)
	}
	return lost, nil
}

// settling is one Settle. A statement is prepared once for all jobs that end
// alike.
type settling struct {
	store    *Store
	tx       *sql.Tx
	prepared map[string]*sql.Stmt
}

func (s *settling) close() {
	for _, statement := range s.prepared {
		_ = statement.Close() // it ends with the transaction
	}
}

func (s *settling) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if known := s.prepared[query]; known != nil {
		return known, nil
	}
	statement, err := s.tx.PrepareContext(ctx, query)
	if err == nil {
		s.prepared[query] = statement
	}
	return statement, err
}

// settle tells whether the lease is still the worker's, or was when it settled
// the job before.
func (s *settling) settle(ctx context.Context, one core.Settlement) (bool, error) {
	r, _ := one.Job.Ref.(ref)
	set, args := s.assignments(one)
	statement, err := s.statement(ctx, "UPDATE outbox_jobs SET "+set+" WHERE "+stillHeld)
	if err != nil {
		return false, err
	}
	n, err := affected(statement.ExecContext(ctx, append(args, r.seq, r.token)...))
	if err != nil || n > 0 {
		return true, err
	}
	if statement, err = s.statement(ctx, "SELECT EXISTS (SELECT 1 FROM outbox_jobs WHERE seq = ? AND token = ?)"); err != nil {
		return false, err
	}
	var settled bool
	err = statement.QueryRowContext(ctx, r.seq, r.token).Scan(&settled)
	return settled, err
}

// freed ends a lease. The token stays: by it a settlement that is repeated is
// known.
const freed = "lease_until = NULL, owner = ''"

// assignments are what a settlement does to its job's row.
func (s *settling) assignments(one core.Settlement) (set string, args []any) {
	cfg := &s.store.cfg
	set = freed
	add := func(text string, values ...any) {
		set += ", " + text
		args = append(args, values...)
	}
	if one.Kind != core.GiveBack && (one.Kind != core.Retry || !one.Uncounted) {
		add("attempts = attempts + 1")
	}
	if one.Failure != (core.Failure{}) {
		failure := cutFailure(one.Failure)
		add("failure_code = ?, failure_reason = ?, failed_at = "+sqlNow, failure.Code, failure.Reason)
	}
	switch one.Kind {
	case core.Complete:
		add("state = 'completed', finished_at = "+sqlNow+", expire_at = "+sqlNow+" + ?, result = ?", millis(cfg.CompletedRetention), one.Receipt)
		if cfg.Retain != RetainAll {
			add("payload = NULL")
		}
	case core.Retry:
		if one.Failure.Code == core.CodeUnknown {
			add("redelivered = 1")
		}
		add("state = 'ready', available_at = "+sqlNow+" + ?", millis(one.Delay))
	case core.GiveBack:
		if one.Delay > 0 {
			add("available_at = "+sqlNow+" + ?", millis(one.Delay))
		}
		add("state = 'ready'")
	case core.Fail:
		add("holds = ? AND cursor IS NOT NULL", one.Holds)
		add(endFailed, millis(cfg.FailedRetention))
		set += s.store.withoutPayload()
	case core.EndUnknown:
		add("state = 'unknown', finished_at = " + sqlNow)
		set += s.store.withoutPayload()
	}
	return set, args
}

// endFailed gives a job up. Those of a cursor are kept.
const endFailed = "state = 'failed', finished_at = " + sqlNow + ", expire_at = CASE WHEN cursor IS NULL THEN " + sqlNow + " + ? END"

// withoutPayload drops that of a job that failed, where it is not to be kept.
func (s *Store) withoutPayload() string {
	if s.cfg.Retain == RetainNone {
		return ", payload = CASE WHEN cursor IS NULL THEN NULL ELSE payload END"
	}
	return ""
}
