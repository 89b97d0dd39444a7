package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// Acquire makes the caller the holder of a cursor, see core.Log. Name and Owner
// are required.
func (s *Store) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := s.acquire(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("acquiring the cursor %q: %w", req.Name, err)
	}
	s.metrics.count(ctx, s.metrics.acquired, 1)
	return c, nil
}

// heldCursor is what Acquire reads of a cursor.
type heldCursor struct {
	owner                   string
	held                    bool
	revision                int64
	begin, position         int64
	moved                   bool
	fruitless, suspectCount int
	suspect                 string
}

func (s *Store) acquire(ctx context.Context, req core.AcquireRequest) (*cursor, error) {
	if req.Name == "" || req.Owner == "" {
		return nil, errors.New("a cursor needs a name and an owner")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultCursorLease
	}
	c := &cursor{
		store: s, name: req.Name, owner: req.Owner, lease: req.Lease, marking: req.Marking,
		queued: map[string]struct{}{}, behind: map[string]int64{},
	}
	err := s.write(ctx, func(tx *sql.Tx) error {
		c.expires = time.Now().Add(req.Lease)
		if _, _, err := s.storedLayout(ctx, tx); err != nil {
			return err
		}
		found, err := s.takeOver(ctx, tx, req)
		if err != nil {
			return err
		}
		c.term = core.Term{
			Position:  positionOf(found.position),
			Fruitless: found.fruitless, SuspectID: found.suspect, SuspectCount: found.suspectCount,
		}
		c.read = max(found.begin, found.position)
		if err := tx.QueryRowContext(ctx, "SELECT fence FROM outbox_cursors WHERE name = ?", req.Name).Scan(&c.fence); err != nil {
			return err
		}
		c.term.Fence = uint64(c.fence) //nolint:gosec // counts from 1
		return c.loadJobs(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	crash.Here("sqlite.takeover")
	return c, nil
}

// takeOver raises the fence of a cursor, which is made where it doesn't exist,
// and returns how it was found.
func (s *Store) takeOver(ctx context.Context, tx *sql.Tx, req core.AcquireRequest) (found heldCursor, err error) {
	err = tx.QueryRowContext(ctx, `SELECT owner, lease_until > `+sqlNow+`, revision, begin_after, position, moved, fruitless, suspect, suspect_count
		FROM outbox_cursors WHERE name = ?`, req.Name).Scan(&found.owner, &found.held, &found.revision, &found.begin, &found.position,
		&found.moved, &found.fruitless, &found.suspect, &found.suspectCount)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if found.begin, err = s.newCursor(ctx, tx, req); err != nil {
			return found, err
		}
	case err != nil:
		return found, err
	default:
		revision := strconv.FormatInt(found.revision, 10)
		if found.held && found.owner != req.Owner && req.Unchanged != revision {
			return found, &core.HeldError{Cursor: req.Name, Owner: found.owner, Revision: revision}
		}
		found.fruitless++
		if found.moved {
			found.fruitless = 0
		}
	}
	// Fences come from one count for all cursors, so that one that is forgotten
	// and made anew doesn't begin with an old fence.
	if _, err := tx.ExecContext(ctx, "UPDATE outbox_meta SET fence = fence + 1"); err != nil {
		return found, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE outbox_cursors SET fence = (SELECT fence FROM outbox_meta), owner = ?, sink = ?, marking = ?,
		lease_until = `+sqlNow+` + ?, revision = revision + 1, moved = 0, fruitless = ? WHERE name = ?`,
		req.Owner, req.Sink, req.Marking, millis(req.Lease), found.fruitless, req.Name)
	return found, err
}

// newCursor makes a cursor that begins where the request says, and returns the
// id after which that is.
func (s *Store) newCursor(ctx context.Context, tx *sql.Tx, req core.AcquireRequest) (begin int64, err error) {
	if req.Start.Now {
		if begin, err = lastID(ctx, tx); err != nil {
			return 0, err
		}
	}
	var from any
	if !req.Start.At.IsZero() {
		from = ceilMillis(req.Start.At)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox_cursors
		(name, owner, sink, fence, lease_until, revision, marking, created_at, begin_after, written_from, include_published)
		VALUES (?, '', '', 0, 0, 0, 0, `+sqlNow+`, ?, ?, ?)`, req.Name, begin, from, req.Start.IncludePublished)
	return begin, err
}

// lastID is the highest id that the log ever had.
func lastID(ctx context.Context, q querier) (id int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0)").Scan(&id)
	return id, err
}

// positionOf is the position of the event with this id.
func positionOf(id int64) core.Position { return core.Position{Time: uint64(id)} } //nolint:gosec // counts from 1
