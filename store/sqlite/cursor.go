package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// cursor is one term, see core.Cursor.
type cursor struct {
	store       *Store
	name, owner string
	fence       int64
	lease       time.Duration
	term        core.Term
	// marking tells that a Save sets published_at.
	marking bool
	// queued are the ids of the events with a job when the term began, and
	// behind the last position of each key's jobs. A term reads each event once,
	// and what it parks itself it has read.
	queued map[string]struct{}
	behind map[string]int64

	mu       sync.Mutex
	read     int64 // the id after which Read goes on
	expires  time.Time
	released bool
}

var _ core.Cursor = (*cursor)(nil)

// mark is the place of an event, or a place between events when event is empty.
type mark struct {
	id    int64
	event string
}

func (m mark) Position() core.Position { return positionOf(m.id) }

// own returns the mark if it came from a store of this kind.
func own(m core.Mark) (mark, error) {
	mine, ok := m.(mark)
	if !ok {
		return mark{}, fmt.Errorf("a mark of type %T was not made by this store", m)
	}
	return mine, nil
}

// Term tells how the cursor was found.
func (c *cursor) Term() core.Term { return c.term }

// Expires is when the lease ends if nothing more is written.
func (c *cursor) Expires() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expires
}

// over tells whether the term was released.
func (c *cursor) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.released
}

// write changes the cursor's row by the assignments in set, if the caller is
// still its holder, and extends the lease. more is done in the same transaction.
func (c *cursor) write(ctx context.Context, set string, args []any, more func(tx *sql.Tx) error) error {
	if c.over() {
		return core.ErrFenced
	}
	var begun time.Time
	err := c.store.write(ctx, func(tx *sql.Tx) error {
		begun = time.Now() // the statement reads the database's clock later
		if set != "" {
			set = ", " + set
		}
		args := append(append([]any{millis(c.lease)}, args...), c.name, c.owner, c.fence)
		n, err := affected(tx.ExecContext(ctx, `UPDATE outbox_cursors SET lease_until = `+sqlNow+` + ?, revision = revision + 1`+set+
			` WHERE name = ? AND owner = ? AND fence = ?`, args...))
		switch {
		case err != nil:
			return err
		case n == 0:
			return core.ErrFenced
		case more != nil:
			return more(tx)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := begun.Add(c.lease); until.After(c.expires) {
		c.expires = until
	}
	return nil
}

// Save stores the position of the last mark, see core.Cursor.
func (c *cursor) Save(ctx context.Context, settled []core.Mark) error {
	if err := c.save(ctx, settled); err != nil {
		return fmt.Errorf("saving the position of cursor %q: %w", c.name, err)
	}
	return nil
}

func (c *cursor) save(ctx context.Context, settled []core.Mark) error {
	var last, events int64
	var ids []int64
	for _, m := range settled {
		m, err := own(m)
		if err != nil {
			return err
		}
		last = max(last, m.id)
		if m.event != "" {
			events++
			ids = append(ids, m.id)
		}
	}
	set := "moved = moved OR ? > position, position = max(position, ?), settled = settled + ?"
	return c.write(ctx, set, []any{last, last, events}, func(tx *sql.Tx) error { return c.markPublished(ctx, tx, ids) })
}

// markPublished sets published_at where the cursor is marking. It is later than
// the creation of every cursor, so that one that has still to deliver the event
// doesn't take it for published before it began.
func (c *cursor) markPublished(ctx context.Context, tx *sql.Tx, ids []int64) error {
	if len(ids) == 0 || !c.marking {
		return nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE outbox SET published_at = max(`+sqlNow+`, (SELECT 1 + max(created_at) FROM outbox_cursors))
		WHERE id IN (SELECT value FROM json_each(?)) AND published_at IS NULL`, string(list))
	return err
}

// Renew extends the lease.
func (c *cursor) Renew(ctx context.Context) error {
	if err := c.write(ctx, "", nil, nil); err != nil {
		return fmt.Errorf("renewing the lease of cursor %q: %w", c.name, err)
	}
	return nil
}

// Suspect notes the entry that is about to be sent alone, or takes the note
// back.
func (c *cursor) Suspect(ctx context.Context, m core.Mark) error {
	var err error
	if m == nil {
		err = c.write(ctx, "suspect = '', suspect_count = 0, suspect_fence = 0", nil, nil)
	} else {
		err = c.suspect(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("noting the event that cursor %q sends alone: %w", c.name, err)
	}
	return nil
}

func (c *cursor) suspect(ctx context.Context, m core.Mark) error {
	at, err := own(m)
	if err != nil {
		return err
	}
	// Once a term; all expressions see the row as it was.
	return c.write(ctx, `suspect_count = CASE WHEN suspect <> ? THEN 1 WHEN suspect_fence = fence THEN suspect_count ELSE suspect_count + 1 END,
		suspect_fence = fence, suspect = ?`, []any{at.event, at.event}, nil)
}

// Release gives the lease back; the fence stays. A term that was released did
// not crash, so it doesn't count as one without progress.
func (c *cursor) Release(ctx context.Context) error {
	c.mu.Lock()
	c.released = true
	c.mu.Unlock()
	c.store.bell.ring() // ends a Read that waits
	err := c.store.write(ctx, func(tx *sql.Tx) error {
		// Nothing matched: the lease was lost or is released already, which is
		// what the caller wants.
		_, err := tx.ExecContext(ctx, `UPDATE outbox_cursors SET owner = '', lease_until = 0, revision = revision + 1,
			fruitless = CASE WHEN moved THEN fruitless ELSE ? END WHERE name = ? AND owner = ? AND fence = ?`,
			c.term.Fruitless-1, c.name, c.owner, c.fence)
		return err
	})
	if err != nil {
		return fmt.Errorf("releasing cursor %q: %w", c.name, err)
	}
	return nil
}
