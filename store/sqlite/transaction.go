package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gooutbox/outbox/core"
)

// transaction remembers the first error of an Append or Enqueue, in case the
// function swallows it. The store's mutex guards it.
type transaction struct{ failed error }

// InTransaction runs fn in a transaction on this process's writer, and commits
// it when fn returns nil; otherwise, and when fn panics, nothing of it ever
// existed. The error is fn's own, or tells why the transaction did not commit:
// also an error of Append or Enqueue that fn didn't return, unless it matches
// core.ErrInvalidEvent or core.ErrInvalidJob. fn runs once.
//
// The transaction is the only one that writes, from its begin to its end, in
// this process and in others. So fn should be short, and must neither call
// InTransaction nor another method of the store that writes: those wait for it.
func (s *Store) InTransaction(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	t := &transaction{}
	s.mu.Lock()
	s.running[tx] = t
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, tx)
		s.mu.Unlock()
		_ = tx.Rollback() // after a commit there is nothing to roll back
	}()
	if err := fn(tx); err != nil {
		return err
	}
	s.mu.Lock()
	failed := t.failed
	s.mu.Unlock()
	if failed != nil {
		return failed
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing a transaction: %w", endOf(ctx, err))
	}
	s.bell.ring()
	return nil
}

// begin begins a transaction as the writer. SQLite has no queue of those who
// wait: each asks again after a while, up to 100 ms, in which others may come
// and go. So the store asks again itself, sooner.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	for begun := time.Now(); ; {
		tx, err := s.writes.BeginTx(ctx, nil)
		if err == nil || !isBusy(err) || time.Since(begun) > s.cfg.BusyTimeout {
			return tx, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rand.N(2 * time.Millisecond)):
		}
	}
}

// endOf says that a transaction is over since its context is.
func endOf(ctx context.Context, err error) error {
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// fail keeps the transaction from being committed, if InTransaction began it.
func (s *Store) fail(tx *sql.Tx, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.running[tx]; t != nil && t.failed == nil {
		t.failed = err
	}
}

// write runs fn in a transaction of the store's own: all of it takes effect, or
// nothing. Others are told when it committed.
func (s *Store) write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := fn(tx); err != nil {
		return endOf(ctx, err)
	}
	if err := tx.Commit(); err != nil {
		return endOf(ctx, err)
	}
	s.bell.ring()
	return nil
}

// read runs fn on one state of the database.
func (s *Store) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has read only
	return endOf(ctx, fn(tx))
}

// savepoint runs fn so that nothing of it stays in the transaction when it
// fails. A transaction that is over, or none, is core.ErrNoTransaction.
func savepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if tx == nil {
		return core.ErrNoTransaction
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT outbox_call"); err != nil {
		if errors.Is(err, sql.ErrTxDone) {
			err = core.ErrNoTransaction
		}
		return err
	}
	err := fn()
	if err != nil {
		_, undo := tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO outbox_call")
		if undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, undo)
		}
	}
	if _, release := tx.ExecContext(context.WithoutCancel(ctx), "RELEASE outbox_call"); err == nil {
		err = release
	}
	return err
}

// affected is how many rows a statement changed.
func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// each calls take for each row of a query.
func each(ctx context.Context, q querier, take func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // nothing was written
	for rows.Next() {
		if err := take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
