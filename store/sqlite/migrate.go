package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gooutbox/outbox/core"
)

// Migrate makes the file and its tables, or brings those of an older version up
// to date; what is as it should be is left alone. It runs in one transaction, so
// that of several processes that start at once one does it and the others find
// it done. A layout of a newer version is refused by core.ErrNewerLayout.
//
// The layout is described in docs/sqlite.md. A program's own tables in the file
// are not touched; the journal mode of the file becomes WAL.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return fmt.Errorf("making the tables of the outbox in %s: %w", s.path, err)
	}
	return nil
}

// prepare is Migrate where it was not found to be done yet.
func (s *Store) prepare(ctx context.Context) error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	return s.Migrate(ctx)
}

func (s *Store) migrate(ctx context.Context) error {
	if err := s.useWAL(ctx); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	from, id, err := s.storedLayout(ctx, tx)
	if err != nil {
		return err
	}
	if from < len(s.steps) {
		for _, step := range s.steps[from:] {
			for _, statement := range step {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
		}
		if err := tx.QueryRowContext(ctx, "UPDATE outbox_meta SET layout = ? RETURNING id", len(s.steps)).Scan(&id); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	s.found(id)
	return nil
}

// found notes that the layout is known.
func (s *Store) found(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready, s.id = true, id
}

// querier is a transaction or a database.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// storedLayout is the version that stands in the file, 0 where there is no
// outbox, and the id of the outbox. A newer version is an error.
func (s *Store) storedLayout(ctx context.Context, q querier) (version int, id string, err error) {
	var there bool
	err = q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'outbox_meta')").Scan(&there)
	if err != nil || !there {
		return 0, "", err
	}
	if err := q.QueryRowContext(ctx, "SELECT layout, id FROM outbox_meta").Scan(&version, &id); err != nil {
		return 0, "", err
	}
	return version, id, s.checkVersion(version)
}

func (s *Store) checkVersion(version int) error {
	if version > len(s.steps) {
		return fmt.Errorf("%w: the file has version %d, this one knows %d", core.ErrNewerLayout, version, len(s.steps))
	}
	return nil
}

// exists returns core.ErrNoOutbox where there is none, and makes nothing.
func (s *Store) exists(ctx context.Context) error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no file %s", core.ErrNoOutbox, s.path)
	}
	version, id, err := s.storedLayout(ctx, s.reads)
	switch {
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("%w: %s has no table outbox_meta", core.ErrNoOutbox, s.path)
	case version < len(s.steps):
		return fmt.Errorf("the stored layout has version %d: a relay of this version, or Migrate, brings it to %d", version, len(s.steps))
	}
	s.found(id)
	return nil
}

// useWAL sets the journal mode, which stays with the file. While another process
// does the same SQLite answers that the file is locked, without waiting.
func (s *Store) useWAL(ctx context.Context) error {
	for begin := time.Now(); ; {
		var mode string
		err := s.writes.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("the file's journal mode is %s and can't be WAL: is it on a local disk?", mode)
		case !isBusy(err) || time.Since(begin) > s.cfg.BusyTimeout:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// isBusy tells whether another connection was in the way.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// isConstraint tells whether a constraint was violated.
func isConstraint(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}
