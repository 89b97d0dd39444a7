package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Stats counts jobs and tells how the cursors stand, in one state of the
// database, see core.Admin. Its cost grows with the number of jobs.
func (s *Store) Stats(ctx context.Context) (core.Stats, error) {
	var stats core.Stats
	err := s.exists(ctx)
	if err == nil {
		err = s.read(ctx, func(tx *sql.Tx) error {
			stats = core.Stats{}
			if err := countJobs(ctx, tx, &stats); err != nil {
				return err
			}
			if stats.Pauses, err = pausesIn(ctx, tx); err != nil {
				return err
			}
			return cursorStats(ctx, tx, &stats)
		})
	}
	if err != nil {
		return core.Stats{}, fmt.Errorf("counting: %w", err)
	}
	return stats, nil
}

func countJobs(ctx context.Context, tx *sql.Tx, stats *core.Stats) error {
	var now int64
	if err := tx.QueryRowContext(ctx, "SELECT "+sqlNow).Scan(&now); err != nil {
		return err
	}
	stats.At = time.UnixMilli(now).UTC()
	sinks := map[string]*core.SinkStats{}
	err := each(ctx, tx, func(rows *sql.Rows) error {
		var name string
		var state core.JobState
		var delayed bool
		var jobs, since int64
		if err := rows.Scan(&name, &state, &delayed, &jobs, &since); err != nil {
			return err
		}
		sink := sinks[name]
		if sink == nil {
			sink = &core.SinkStats{Sink: name}
			sinks[name] = sink
		}
		switch {
		case delayed:
			stats.Delayed += jobs
			sink.Delayed += jobs
		case state == core.JobReady:
			waits := time.Duration(max(0, now-since)) * time.Millisecond
			stats.Ready += jobs
			sink.Ready += jobs
			stats.OldestReady, sink.OldestReady = max(stats.OldestReady, waits), max(sink.OldestReady, waits)
		case state == core.JobActive:
			stats.Active += jobs
			sink.Active += jobs
		case state == core.JobCompleted:
			stats.Completed += jobs
		case state == core.JobFailed:
			stats.Failed += jobs
			sink.Failed += jobs
		case state == core.JobUnknown:
			stats.Unknown += jobs
			sink.Unknown += jobs
		}
		return nil
	}, `SELECT sink, state, state = 'ready' AND available_at > ? AS delayed, count(*), min(max(available_at, enqueued_at))
		FROM outbox_jobs GROUP BY 1, 2, 3`, now)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		stats.Sinks = append(stats.Sinks, *sinks[name])
	}
	return nil
}

func cursorStats(ctx context.Context, tx *sql.Tx, stats *core.Stats) error {
	err := each(ctx, tx, func(rows *sql.Rows) error {
		var c core.CursorInfo
		var position int64
		err := rows.Scan(&c.Name, &c.Owner, &c.Fence, &c.Held, &position, &c.Settled, &c.Parked, &c.Failed)
		if position > 0 {
			c.Position = positionOf(position)
		}
		stats.Cursors = append(stats.Cursors, c)
		return err
	}, `SELECT name, owner, fence, lease_until > `+sqlNow+`, position, settled,
			(SELECT count(*) FROM outbox_jobs WHERE cursor = c.name AND state IN ('ready', 'active')),
			(SELECT count(*) FROM outbox_jobs WHERE cursor = c.name AND state = 'failed')
		FROM outbox_cursors c ORDER BY name`)
	if err != nil {
		return err
	}
	var mean float64
	err = tx.QueryRowContext(ctx, `SELECT coalesce(avg(size), 0) FROM
		(SELECT length(CAST(payload AS BLOB)) + length(headers) + 100 AS size FROM outbox ORDER BY id DESC LIMIT 100)`).Scan(&mean)
	if err != nil {
		return err
	}
	for i := range stats.Cursors {
		c := &stats.Cursors[i]
		if c.Lag, err = lagOf(ctx, tx, c.Name); err != nil {
			return err
		}
		c.LagBytes = c.Lag.Events * int64(mean)
	}
	return nil
}
