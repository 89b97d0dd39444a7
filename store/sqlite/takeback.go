package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gooutbox/outbox/core"
)

// takeBackLimit is TakeBackRequest.Limit where none is given.
const takeBackLimit = 1000

// lapsed selects the leases that may be taken back; the argument is the grace.
const lapsed = "state = 'active' AND lease_until < " + sqlNow + " - ?"

var grace = core.TakeBackGrace.Milliseconds()

// TakeBack ends leases that ran out, see core.Queue: those that ended longest
// ago first. What was settled or extended meanwhile is left as it is.
func (s *Store) TakeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	result, err := s.takeBack(ctx, req)
	if err != nil {
		return result, fmt.Errorf("taking jobs back: %w", err)
	}
	return result, nil
}

// lapse is a lease that ran out.
type lapse struct {
	ref
	id, sink string
}

// end is a job that was ended rather than made ready.
type end struct {
	id string
	as core.JobState
}

func (s *Store) takeBack(ctx context.Context, req core.TakeBackRequest) (result core.TakeBackResult, err error) {
	req.MaxRedeliveries = orDefault(req.MaxRedeliveries, core.DefaultMaxRedeliveries)
	if req.Limit <= 0 {
		req.Limit = takeBackLimit
	}
	if err := s.prepare(ctx); err != nil {
		return result, err
	}
	overdue, err := s.overdue(ctx, req)
	if err != nil || len(overdue) == 0 {
		return result, err
	}
	// What Reservations can't tell is left; the others are taken back.
	sent, asked := mayBeSent(ctx, req, overdue)
	var ended []end
	err = s.write(ctx, func(tx *sql.Tx) error {
		result, ended = core.TakeBackResult{}, nil
		for _, l := range overdue {
			maySent, known := sent[l.id]
			if !known && slices.Contains(req.NoRepeat, l.sink) {
				continue
			}
			before := result
			if err := s.endLease(ctx, tx, req, l, maySent, &result); err != nil {
				return err
			}
			switch {
			case result.Crashed > before.Crashed:
				ended = append(ended, end{l.id, core.JobFailed})
			case result.Unknown > before.Unknown:
				ended = append(ended, end{l.id, core.JobUnknown})
			}
		}
		return nil
	})
	if err != nil {
		return core.TakeBackResult{}, err
	}
	for _, e := range ended {
		if req.Ended != nil {
			req.Ended(e.id, e.as)
		}
	}
	return result, asked
}

// overdue are the leases that ended longest ago.
func (s *Store) overdue(ctx context.Context, req core.TakeBackRequest) (found []lapse, err error) {
	condition, args := lapsed, []any{grace}
	if req.Sinks != nil {
		sinks, err := json.Marshal(req.Sinks)
		if err != nil {
			return nil, err
		}
		cursors, err := json.Marshal(slices.Concat([]string{}, req.Cursors))
		if err != nil {
			return nil, err
		}
		condition += " AND (sink IN (SELECT value FROM json_each(?)) OR cursor IN (SELECT value FROM json_each(?)))"
		args = append(args, string(sinks), string(cursors))
	}
	err = each(ctx, s.reads, func(rows *sql.Rows) error {
		var l lapse
		err := rows.Scan(&l.seq, &l.token, &l.id, &l.sink)
		found = append(found, l)
		return err
	}, "SELECT seq, token, id, sink FROM outbox_jobs WHERE "+condition+" ORDER BY lease_until, seq LIMIT ?", append(args, req.Limit)...)
	return found, err
}

// mayBeSent tells of each job of a NoRepeat sink whether it may have been sent,
// and of none where it can't be told.
func mayBeSent(ctx context.Context, req core.TakeBackRequest, overdue []lapse) (map[string]bool, error) {
	var ids []string
	for _, l := range overdue {
		if slices.Contains(req.NoRepeat, l.sink) {
			ids = append(ids, l.id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var reserved map[string]bool
	if req.Reservations != nil {
		var err error
		if reserved, err = req.Reservations.Reserved(ctx, ids); err != nil {
			return nil, fmt.Errorf("asking what was sent: %w", err)
		}
	}
	sent := make(map[string]bool, len(ids))
	for _, id := range ids {
		sent[id] = req.Reservations == nil || reserved[id]
	}
	return sent, nil
}

// endLease takes one lease back if it is still as it was found. The token goes,
// so that its holder learns that it is lost.
func (s *Store) endLease(ctx context.Context, tx *sql.Tx, req core.TakeBackRequest, l lapse, maySent bool, result *core.TakeBackResult) error {
	var redeliveries int
	found := each(ctx, tx, func(rows *sql.Rows) error {
		redeliveries = -1
		return rows.Scan(&redeliveries)
	}, "SELECT redeliveries FROM outbox_jobs WHERE seq = ? AND token = ? AND "+lapsed, l.seq, l.token, grace)
	if found != nil {
		return found
	}
	set, args, count := "state = 'ready', available_at = "+sqlNow+", redeliveries = redeliveries + 1, redelivered = 1", []any(nil), &result.Ready
	switch {
	case maySent:
		set, count = "state = 'unknown', finished_at = "+sqlNow+s.withoutPayload()+because, &result.Unknown
		args = []any{core.CodeUnknown, "the lease ran out after the delivery may have begun"}
	case redeliveries >= req.MaxRedeliveries:
		set, count = endFailed+s.withoutPayload()+because, &result.Crashed
		args = []any{millis(s.cfg.FailedRetention), core.CodeCrashed, fmt.Sprintf("the lease ran out %d times", redeliveries+1)}
	}
	n, err := affected(tx.ExecContext(ctx, "UPDATE outbox_jobs SET token = NULL, "+freed+", "+set+" WHERE seq = ? AND token = ? AND "+lapsed,
		append(args, l.seq, l.token, grace)...))
	*count += int(n)
	return err
}

// because notes why a job ended.
const because = ", failure_code = ?, failure_reason = ?, failed_at = " + sqlNow
