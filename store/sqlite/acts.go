package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// record keeps what was done, in the transaction that did it, and returns its
// id.
func record(ctx context.Context, tx *sql.Tx, act core.Act, what, target string, jobs int64) (id int64, err error) {
	result, err := tx.ExecContext(ctx, `INSERT INTO outbox_acts (done_at, operator, reason, what, target, jobs) VALUES (`+sqlNow+`, ?, ?, ?, ?, ?)`,
		act.By, cutText(act.Reason, core.MaxReasonBytes), what, target, jobs)
	if err != nil {
		return 0, fmt.Errorf("recording who does it: %w", err)
	}
	return result.LastInsertId()
}

// checkAct tells what is missing of an act, or that there is nothing to act on.
func (s *Store) checkAct(ctx context.Context, act core.Act) error {
	if act.By == "" {
		return errors.New("say who does it")
	}
	return s.exists(ctx)
}

// Acts lists what operators did, newest first, see core.Admin.
func (s *Store) Acts(ctx context.Context, limit int) ([]core.ActRecord, error) {
	if limit <= 0 {
		return nil, errors.New("listing acts: say how many at most")
	}
	var acts []core.ActRecord
	err := s.exists(ctx)
	if err == nil {
		err = each(ctx, s.reads, func(rows *sql.Rows) error {
			var a core.ActRecord
			var at int64
			err := rows.Scan(&at, &a.By, &a.Reason, &a.What, &a.Target, &a.Count)
			a.At = time.UnixMilli(at).UTC()
			acts = append(acts, a)
			return err
		}, "SELECT done_at, operator, reason, what, target, jobs FROM outbox_acts ORDER BY id DESC LIMIT ?", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("listing acts: %w", err)
	}
	return acts, nil
}

// PauseBy is Pause as an operator's act, see core.Admin.
func (s *Store) PauseBy(ctx context.Context, p core.Pause, act core.Act) error {
	p.By, p.Reason = act.By, cmp.Or(p.Reason, act.Reason)
	return s.actOn(ctx, act, "pause", string(p.Scope)+" "+p.Name, func(tx *sql.Tx) error {
		if p.Scope == "" || p.Name == "" || p.For < 0 {
			return errors.New("name the scope and the target, and no time below zero")
		}
		return pause(ctx, tx, p)
	})
}

// ResumeBy is Resume as an operator's act, see core.Admin.
func (s *Store) ResumeBy(ctx context.Context, target core.PauseTarget, act core.Act) error {
	return s.actOn(ctx, act, "resume", string(target.Scope)+" "+target.Name, func(tx *sql.Tx) error { return resume(ctx, tx, target) })
}

// ForgetCursor removes a cursor that no longer runs, see core.Admin. Its jobs
// stay. Run again, it is a new cursor.
func (s *Store) ForgetCursor(ctx context.Context, name string, act core.Act) error {
	return s.actOn(ctx, act, "forget cursor", name, func(tx *sql.Tx) error {
		var owner, revision string
		err := tx.QueryRowContext(ctx, "SELECT owner, revision FROM outbox_cursors WHERE name = ? AND lease_until > "+sqlNow, name).Scan(&owner, &revision)
		switch {
		case err == nil:
			return &core.HeldError{Cursor: name, Owner: owner, Revision: revision}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM outbox_cursors WHERE name = ?", name)
		return err
	})
}

// actOn does one thing and records it.
func (s *Store) actOn(ctx context.Context, act core.Act, what, target string, do func(tx *sql.Tx) error) error {
	err := s.checkAct(ctx, act)
	if err == nil && !act.DryRun {
		err = s.write(ctx, func(tx *sql.Tx) error {
			if err := do(tx); err != nil {
				return err
			}
			_, err := record(ctx, tx, act, what, target, 1)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	return nil
}
