package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// ErrOtherDatabase: the transaction is one of another database than the store's
// file: its events would lie where no relay looks.
var ErrOtherDatabase = errors.New("the transaction is one of another database than the store's: begin it on a connection to the same file")

// Append adds events to the log in the caller's transaction. They are read by
// cursors when it commits, and don't exist if it doesn't. After the commit of a
// transaction that InTransaction did not begin, call Notify.
//
// An event without an ID gets a UUIDv7; one without OccurredAt the time of the
// call; times are cut to milliseconds. Where the caller set no trace headers
// and ctx holds a span, W3C trace context is added to the headers. events
// themselves are not changed.
//
// Whatever the error, nothing of the call is in the transaction. A transaction
// that is nil or over is core.ErrNoTransaction; ErrOtherDatabase and
// core.ErrNewerLayout are told, too; invalid events match core.ErrInvalidEvent,
// which holds a *core.FieldError for each problem; a *core.DuplicateIDError
// tells an ID that the log holds already. After any but these of wrong events
// InTransaction does not commit.
func (s *Store) Append(ctx context.Context, tx *sql.Tx, events ...core.Event) error {
	err := s.validate(events)
	if tx == nil {
		err = core.ErrNoTransaction
	}
	if err == nil {
		if err = s.append(ctx, tx, events); err != nil {
			s.fail(tx, fmt.Errorf("appending events: %w", err))
		}
	}
	if err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	s.metrics.count(ctx, s.metrics.appended, int64(len(events)))
	return nil
}

func (s *Store) validate(events []core.Event) error {
	var errs []error
	ids := make(map[string]struct{}, len(events))
	for i := range events {
		err := events[i].Validate(s.cfg.MaxEventBytes)
		if _, twice := ids[events[i].ID]; twice && events[i].ID != "" {
			err = errors.Join(err, fmt.Errorf("%w: %w", core.ErrInvalidEvent,
				&core.FieldError{Field: "ID", Problem: "is that of another event of the same call"}))
		}
		ids[events[i].ID] = struct{}{}
		if err != nil && len(events) > 1 {
			err = fmt.Errorf("event %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Store) append(ctx context.Context, tx *sql.Tx, events []core.Event) error {
	if len(events) == 0 {
		return nil
	}
	trace := s.traceHeaders(ctx)
	return savepoint(ctx, tx, func() error {
		insert, err := tx.PrepareContext(ctx, "INSERT INTO outbox ("+eventColumns+", payload) VALUES ("+places(14)+")")
		if err != nil {
			return strange(err)
		}
		defer insert.Close() //nolint:errcheck // it ends with the transaction
		for _, e := range events {
			id, err := newID()
			if err != nil {
				return err
			}
			stored, err := s.encode(ctx, s.complete(e, id, trace))
			if err != nil {
				return err
			}
			if _, err := insert.ExecContext(ctx, append(stored.values(), stored.Payload)...); err != nil {
				if isConstraint(err) && strings.Contains(err.Error(), "outbox.event_id") {
					err = &core.DuplicateIDError{ID: stored.ID}
				}
				return err
			}
		}
		return s.checkTransaction(ctx, tx)
	})
}

// checkTransaction tells whether tx is one of this outbox, in a layout that is
// known. It is asked after the first write: a transaction that begins by reading
// can't write any more once another one has committed.
func (s *Store) checkTransaction(ctx context.Context, tx *sql.Tx) error {
	var version int
	var id string
	if err := tx.QueryRowContext(ctx, "SELECT layout, id FROM outbox_meta").Scan(&version, &id); err != nil {
		return err
	}
	if err := s.checkVersion(version); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.id
	s.mu.Unlock()
	if known == "" {
		// This store has not looked at its file yet. A transaction of the file
		// keeps others from migrating it meanwhile, not from reading it.
		if err := s.exists(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		known = s.id
		s.mu.Unlock()
	}
	if known != id {
		return ErrOtherDatabase
	}
	return nil
}

// strange explains why a statement on the outbox's tables can't be prepared.
func strange(err error) error {
	if strings.Contains(err.Error(), "no such table") {
		return fmt.Errorf("%w, or call Migrate first: %w", ErrOtherDatabase, err)
	}
	return err
}
