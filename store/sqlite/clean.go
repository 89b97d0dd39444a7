package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// cleanRange is how many rows one transaction removes: others write in between.
const cleanRange = 1000

// Clean removes events in bounded ranges, see core.Log: those from the beginning
// of the log up to the first one that is younger than the retention. The margin
// behind the cursors is zero, since positions are exact. Where there is no cursor
// nothing is removed.
func (s *Store) Clean(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
	if req.Retention <= 0 {
		return core.CleanResult{}, errors.New("cleaning the log: no retention given")
	}
	result, err := s.clean(ctx, req)
	s.metrics.count(ctx, s.metrics.cleaned, result.Removed)
	if err != nil {
		return result, fmt.Errorf("cleaning the log: %w", err)
	}
	return result, nil
}

func (s *Store) clean(ctx context.Context, req core.CleanRequest) (result core.CleanResult, err error) {
	for more := true; more; {
		err := s.write(ctx, func(tx *sql.Tx) error {
			bound, slowest, err := slowestCursor(ctx, tx, req.Cursors)
			if err != nil {
				return err
			}
			var young int64
			err = tx.QueryRowContext(ctx, "SELECT coalesce((SELECT id FROM outbox WHERE written_at >= "+sqlNow+" - ? ORDER BY id LIMIT 1), ?)",
				req.Retention.Milliseconds(), int64(math.MaxInt64)).Scan(&young)
			if err != nil {
				return err
			}
			n, err := affected(tx.ExecContext(ctx, "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE id <= ? AND id < ? ORDER BY id LIMIT ?)",
				bound, young, cleanRange))
			if err != nil {
				return err
			}
			crash.Here("sqlite.cleaner")
			var held bool
			err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM outbox WHERE id > ? AND id < ?)", bound, young).Scan(&held)
			result.Removed += n
			more = n == cleanRange
			if held {
				result.HeldBy = slowest
			}
			return err
		})
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// slowestCursor names the cursor that is furthest behind, and the id that it has
// passed. A required one that doesn't exist is behind them all.
func slowestCursor(ctx context.Context, tx *sql.Tx, required []string) (bound int64, name string, err error) {
	bound = math.MaxInt64
	var names []string
	err = each(ctx, tx, func(rows *sql.Rows) error {
		var one string
		var passed int64
		if err := rows.Scan(&one, &passed); err != nil {
			return err
		}
		names = append(names, one)
		if passed < bound {
			bound, name = passed, one
		}
		return nil
	}, "SELECT name, max(begin_after, position) FROM outbox_cursors")
	if err != nil {
		return 0, "", err
	}
	for _, one := range required {
		if !slices.Contains(names, one) {
			return 0, one, nil
		}
	}
	if len(names) == 0 {
		bound = 0
	}
	return bound, name, nil
}

// CleanJobs removes failed jobs whose retention ended, see core.Queue, and,
// uncounted, completed ones. A completed job of a cursor stays while the cursor
// may still read its event.
func (s *Store) CleanJobs(ctx context.Context) (removed int64, err error) {
	for more := true; more && err == nil; {
		err = s.write(ctx, func(tx *sql.Tx) error {
			var failed, all int64
			err := each(ctx, tx, func(rows *sql.Rows) error {
				var state core.JobState
				err := rows.Scan(&state)
				all++
				if state == core.JobFailed {
					failed++
				}
				return err
			}, `DELETE FROM outbox_jobs WHERE seq IN (SELECT seq FROM outbox_jobs j WHERE expire_at <= `+sqlNow+` AND
				(cursor IS NULL OR NOT EXISTS (SELECT 1 FROM outbox_cursors c WHERE c.name = j.cursor AND c.position < j.position))
				ORDER BY expire_at LIMIT ?) RETURNING state`, cleanRange)
			more = all == cleanRange
			removed += failed
			return err
		})
	}
	s.metrics.count(ctx, s.metrics.jobsCleaned, removed)
	if err != nil {
		return removed, fmt.Errorf("cleaning jobs: %w", err)
	}
	return removed, nil
}
