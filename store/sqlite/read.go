package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// entryOverhead is about what an entry takes beside its strings and payload.
const entryOverhead = 256

// notSkipped selects the events that the start of a cursor doesn't leave out. It
// needs the cursor's row as c.
const notSkipped = "(c.written_from IS NULL OR o.written_at >= c.written_from) AND (c.include_published OR o.published_at IS NULL OR o.published_at > c.created_at)"

// Read waits for events, see core.Cursor.
func (c *cursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	batch, err := c.next(ctx, limit.OrDefaults())
	if err != nil {
		return core.Batch{}, fmt.Errorf("reading the log: %w", err)
	}
	return batch, nil
}

// next looks at once, and then whenever something was committed.
func (c *cursor) next(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	bell := c.store.bell
	idle := time.NewTimer(c.store.cfg.ReadWait)
	defer idle.Stop()
	batch, err := c.look(ctx, limit)
	if err != nil || len(batch.Entries) > 0 {
		return batch, err
	}
	// Changes are looked for from here on, so another look is due.
	defer bell.listen()()
	for {
		heard := bell.heard()
		batch, err = c.look(ctx, limit)
		if err != nil || len(batch.Entries) > 0 {
			return batch, err
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return core.Batch{}, ctx.Err()
		case <-idle.C:
			return batch, nil
		}
	}
}

// look returns what is there to read.
func (c *cursor) look(ctx context.Context, limit core.ReadLimit) (batch core.Batch, err error) {
	if c.over() {
		return core.Batch{}, core.ErrFenced
	}
	c.mu.Lock()
	after := c.read
	c.mu.Unlock()
	err = c.store.read(ctx, func(tx *sql.Tx) error {
		var holder bool
		err := tx.QueryRowContext(ctx, "SELECT owner = ? AND fence = ? FROM outbox_cursors WHERE name = ?", c.owner, c.fence, c.name).Scan(&holder)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !holder {
			return core.ErrFenced
		}
		if err != nil {
			return err
		}
		full, last, err := c.fill(ctx, tx, &batch, limit, after)
		after = last
		if err != nil || full {
			return err
		}
		// What is left out is passed, too: up to the end of the log in this state
		// of the database. No event that comes later has a lower id.
		end, err := lastID(ctx, tx)
		if err == nil && end > 0 {
			after = max(after, end)
			batch.Reached = mark{id: after}
		}
		return err
	})
	if err != nil {
		return core.Batch{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = after
	return batch, nil
}

// fill reads events with an id above after until the batch is full, or there is
// none left. It returns the id of the last one.
func (c *cursor) fill(ctx context.Context, tx *sql.Tx, batch *core.Batch, limit core.ReadLimit, after int64) (full bool, last int64, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT o.id, o.written_at, o.payload, o.`+eventColumns+` FROM outbox_cursors c, outbox o
		WHERE c.name = ? AND o.id > ? AND `+notSkipped+` ORDER BY o.id LIMIT ?`, c.name, after, limit.Events)
	if err != nil {
		return false, after, err
	}
	defer rows.Close() //nolint:errcheck // nothing was written
	size := 0
	for rows.Next() {
		var id, written int64
		var stored storedEvent
		if err := rows.Scan(append([]any{&id, &written, &stored.Payload}, stored.fields()...)...); err != nil {
			return false, after, err
		}
		n := stored.Size() + entryOverhead
		if len(batch.Entries) > 0 && size+n > limit.Bytes {
			return true, after, nil
		}
		size += n
		entry := core.Entry{
			Mark: mark{id, stored.ID}, Size: n, CommittedAt: time.UnixMilli(written).UTC(), Queued: c.isQueued(id, &stored),
			Err: c.store.decode(ctx, &stored, false),
		}
		entry.Event = stored.Event
		batch.Entries = append(batch.Entries, entry)
		after = id
	}
	return len(batch.Entries) == limit.Events, after, rows.Err()
}

// isQueued tells whether the event has a job of the cursor, or was settled
// before one behind it was parked.
func (c *cursor) isQueued(id int64, e *storedEvent) bool {
	if _, there := c.queued[e.ID]; there {
		return true
	}
	return e.AggregateID != "" && c.behind[e.AggregateID] > id
}

// loadJobs notes which events that are still to be read have a job. The caller
// has raised the fence in the same transaction: a former holder parks nothing
// more.
func (c *cursor) loadJobs(ctx context.Context, tx *sql.Tx) error {
	return each(ctx, tx, func(rows *sql.Rows) error {
		var event, key string
		var position int64
		if err := rows.Scan(&event, &key, &position); err != nil {
			return err
		}
		c.queued[event] = struct{}{}
		if key != "" {
			c.behind[key] = max(c.behind[key], position)
		}
		return nil
	}, "SELECT event_id, aggregate_id, position FROM outbox_jobs WHERE cursor = ? AND position > ?", c.name, c.read)
}
