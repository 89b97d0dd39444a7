package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gooutbox/outbox/core"
)

// actRange is how many jobs one transaction of an act changes: others write in
// between.
const actRange = 1000

// Retry makes failed and unknown jobs ready again, and those due that wait where
// they are asked for, see core.Admin. Jobs whose payload was not retained are
// left. It writes in ranges, in the order in which the jobs came; one that is cut
// short has done a part, which is recorded, and may be repeated.
func (s *Store) Retry(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	eligible := "(state IN ('failed', 'unknown') AND payload IS NOT NULL)"
	if len(filter.IDs) > 0 || filter.State == core.JobReady {
		eligible = "(" + eligible + " OR state = 'ready' AND available_at > " + sqlNow + ")"
	}
	return s.actOnJobs(ctx, "retry", filter, act, eligible, func(tx *sql.Tx, seq int64, number, total int) (int64, error) {
		delay := act.Spread.Milliseconds() * int64(number) / int64(total)
		// All expressions see the row as it was. What only waited keeps its
		// attempts and its token.
		return affected(tx.ExecContext(ctx, `UPDATE outbox_jobs SET state = 'ready',
			available_at = CASE state WHEN 'ready' THEN min(available_at, `+sqlNow+` + ?1) ELSE `+sqlNow+` + ?1 END,
			redelivered = redelivered OR state = 'unknown' OR state = 'failed' AND failure_code = ?2,
			attempts = CASE state WHEN 'ready' THEN attempts ELSE 0 END,
			redeliveries = CASE state WHEN 'ready' THEN redeliveries ELSE 0 END,
			redriven = redriven OR state <> 'ready',
			token = CASE state WHEN 'ready' THEN token END,
			expire_at = NULL, finished_at = NULL
			WHERE seq = ?3 AND `+eligible, delay, core.CodeCrashed, seq))
	})
}

// Discard removes jobs that are not active, see core.Admin. One from a cursor
// ends as completed instead, with "discarded" as its result, and is kept for
// ever: its event may be read again, and would be sent, were there no job.
func (s *Store) Discard(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	const eligible = "(state <> 'active' AND NOT discarded)"
	return s.actOnJobs(ctx, "discard", filter, act, eligible, func(tx *sql.Tx, seq int64, _, _ int) (int64, error) {
		n, err := affected(tx.ExecContext(ctx, "DELETE FROM outbox_jobs WHERE cursor IS NULL AND seq = ? AND "+eligible, seq))
		if err != nil || n > 0 {
			return n, err
		}
		return affected(tx.ExecContext(ctx, `UPDATE outbox_jobs SET state = 'completed', discarded = 1, holds = 0, result = 'discarded', payload = NULL,
			finished_at = `+sqlNow+`, expire_at = NULL WHERE seq = ? AND `+eligible, seq))
	})
}

// actOnJobs does something to each job that a filter selects and that is
// eligible, and records it. do is told the job's number and how many there are.
func (s *Store) actOnJobs(ctx context.Context, what string, filter core.JobFilter, act core.Act, eligible string,
	do func(tx *sql.Tx, seq int64, number, total int) (int64, error),
) (int64, error) {
	done, err := s.actOnSelected(ctx, what, filter, act, eligible, do)
	if err != nil {
		return done, fmt.Errorf("%s of jobs: %w", what, err)
	}
	return done, nil
}

func (s *Store) actOnSelected(ctx context.Context, what string, filter core.JobFilter, act core.Act, eligible string,
	do func(tx *sql.Tx, seq int64, number, total int) (int64, error),
) (done int64, err error) {
	if err := s.checkAct(ctx, act); err != nil {
		return 0, err
	}
	condition, args, some := selecting(filter)
	if !some {
		return 0, nil
	}
	var seqs []int64
	err = each(ctx, s.reads, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}, "SELECT seq FROM outbox_jobs WHERE "+condition+" AND "+eligible+" ORDER BY seq", args...)
	if err != nil || act.DryRun {
		return int64(len(seqs)), err
	}
	number, recorded := 0, int64(0)
	for some := range slices.Chunk(seqs, actRange) {
		changed := int64(0)
		err := s.write(ctx, func(tx *sql.Tx) error {
			for i, seq := range some {
				n, err := do(tx, seq, number+i, len(seqs))
				if err != nil {
					return err
				}
				changed += n
			}
			if recorded > 0 {
				_, err := tx.ExecContext(ctx, "UPDATE outbox_acts SET jobs = jobs + ? WHERE id = ?", changed, recorded)
				return err
			}
			recorded, err = record(ctx, tx, act, what, describe(filter), changed)
			return err
		})
		if err != nil {
			return done, err
		}
		done += changed
		number += len(some)
	}
	return done, nil
}
