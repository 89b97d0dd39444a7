package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// isOpen selects the jobs that OpenJobs lists.
const isOpen = "(state IN ('ready', 'active') OR state = 'failed' AND holds)"

// OpenJobs lists the jobs that are still to be delivered, in one state of the
// database, see core.Cursor.
func (c *cursor) OpenJobs(ctx context.Context) ([]core.OpenJob, error) {
	var jobs []core.OpenJob
	err := each(ctx, c.store.reads, func(rows *sql.Rows) error {
		var o core.OpenJob
		var seq, position int64
		var due sql.NullInt64
		var code, reason sql.NullString
		if err := rows.Scan(&seq, &o.ID, &o.EventID, &o.Key, &position, &o.State, &o.Attempts, &code, &reason, &due); err != nil {
			return err
		}
		o.Position, o.Ref = positionOf(position), seq
		o.Failure = core.Failure{Code: code.String, Reason: reason.String}
		o.Due = time.Duration(due.Int64) * time.Millisecond
		jobs = append(jobs, o)
		return nil
	}, `SELECT seq, id, event_id, aggregate_id, position, state, attempts, failure_code, failure_reason,
		CASE state WHEN 'ready' THEN available_at - `+sqlNow+` WHEN 'active' THEN lease_until + ? - `+sqlNow+` END
		FROM outbox_jobs WHERE cursor = ? AND `+isOpen+` ORDER BY position`, core.TakeBackGrace.Milliseconds(), c.name)
	if err != nil {
		return nil, fmt.Errorf("listing open jobs of cursor %q: %w", c.name, err)
	}
	return jobs, nil
}

// ClaimJobs lends ready jobs of the cursor, see core.Cursor.
func (c *cursor) ClaimJobs(ctx context.Context, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
	var claimed []*core.Claimed
	if len(jobs) == 0 {
		return nil, nil
	}
	err := c.store.write(ctx, func(tx *sql.Tx) error {
		l := newLending(c.store, c.owner, orDefault(lease, core.DefaultJobLease))
		seqs := make([]int64, 0, len(jobs))
		for _, o := range jobs {
			if seq, ok := o.Ref.(int64); ok {
				seqs = append(seqs, seq)
			}
		}
		var err error
		claimed, err = l.lend(ctx, tx, seqs, "cursor = ?", c.name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claiming jobs of cursor %q: %w", c.name, err)
	}
	for _, got := range claimed {
		got.Lease.Route, got.Lease.Fence = c.name, c.term.Fence
	}
	return claimed, nil
}
