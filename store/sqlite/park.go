package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

// parkedID is the id of a job that came from a cursor.
func parkedID(cursor, event string) string { return cursor + "/" + event }

// Park writes jobs for events, see core.Cursor, in the order of the log. Each is
// a copy of the event's row: a sealed payload stays sealed, and what can't be
// decoded stays as it is.
func (c *cursor) Park(ctx context.Context, entries []core.Parked) error {
	if err := c.park(ctx, entries); err != nil {
		return fmt.Errorf("parking events of cursor %q: %w", c.name, err)
	}
	return nil
}

func (c *cursor) park(ctx context.Context, entries []core.Parked) error {
	order := make([]*core.Parked, len(entries))
	for i := range entries {
		p := &entries[i]
		if _, err := own(p.Entry.Mark); err != nil {
			return err
		}
		if p.State != "" && p.State != core.JobReady && p.State != core.JobFailed {
			return fmt.Errorf("an event is parked as ready or failed, not as %s", p.State)
		}
		order[i] = p
	}
	slices.SortStableFunc(order, func(a, b *core.Parked) int {
		return a.Entry.Mark.Position().Compare(b.Entry.Mark.Position())
	})
	return c.write(ctx, "", nil, func(tx *sql.Tx) error {
		for _, p := range order {
			if err := c.parkOne(ctx, tx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// parkOne writes a job unless it is there, and sets the entry's ID and Ref.
func (c *cursor) parkOne(ctx context.Context, tx *sql.Tx, p *core.Parked) error {
	at := p.Entry.Mark.(mark)
	p.ID = parkedID(c.name, at.event)
	var seq int64
	found := each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&seq) }, "SELECT seq FROM outbox_jobs WHERE id = ?", p.ID)
	if found != nil || seq != 0 {
		p.Ref = seq
		return found
	}
	state := cmp.Or(p.State, core.JobFailed)
	failure := cutFailure(p.Failure)
	settings := `, rank, sink, state, attempts, max_attempts, redelivered, holds, cursor, position,
		failure_code, failure_reason, failed_at, available_at, finished_at`
	values := `, NULL, ?, ?, ?, ?, ?, ?, ?, ?,
		?, ?, CASE WHEN ? THEN ` + sqlNow + ` END, CASE WHEN ? THEN ` + sqlNow + ` + ? ELSE 0 END, CASE WHEN ? THEN ` + sqlNow + ` END`
	args := []any{
		p.Sink, string(state), p.Attempts, cmp.Or(p.MaxAttempts, core.DefaultMaxAttempts), p.Redelivered, p.Holds, c.name, at.id,
		failure.Code, failure.Reason, p.Failure != core.Failure{}, state == core.JobReady, millis(p.Delay), state == core.JobFailed,
	}
	n, err := affected(tx.ExecContext(ctx, `INSERT INTO outbox_jobs (id, `+eventColumns+`, payload`+settings+`)
		SELECT ?, `+eventColumns+`, payload`+values+` FROM outbox WHERE id = ?`,
		append(append([]any{p.ID}, args...), at.id)...))
	if err == nil && n == 0 {
		// Somebody removed the event. What was read of it is as good.
		var stored storedEvent
		if stored, err = c.store.encode(ctx, p.Entry.Event); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO outbox_jobs (id, `+eventColumns+`, payload`+settings+`) VALUES (`+places(15)+values+`)`,
			append(append(append([]any{p.ID}, stored.values()...), stored.Payload), args...)...)
	}
	if err != nil {
		return err
	}
	err = tx.QueryRowContext(ctx, "SELECT seq FROM outbox_jobs WHERE id = ?", p.ID).Scan(&seq)
	p.Ref = seq
	return err
}

// cutFailure shortens the reason of a failure to what is stored.
func cutFailure(f core.Failure) core.Failure {
	f.Reason = cutText(f.Reason, core.MaxReasonBytes)
	return f
}

// cutText shortens a text between two characters.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
