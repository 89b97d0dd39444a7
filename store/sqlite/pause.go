package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// inForce selects the pauses that have not ended.
const inForce = "(paused_until IS NULL OR paused_until > " + sqlNow + ")"

// Pauses lists what is paused, by scope and name, see core.Queue.
func (s *Store) Pauses(ctx context.Context) ([]core.Pause, error) {
	var pauses []core.Pause
	err := s.prepare(ctx)
	if err == nil {
		pauses, err = pausesIn(ctx, s.reads)
	}
	if err != nil {
		return nil, fmt.Errorf("listing pauses: %w", err)
	}
	return pauses, nil
}

func pausesIn(ctx context.Context, q querier) (pauses []core.Pause, err error) {
	err = each(ctx, q, func(rows *sql.Rows) error {
		var p core.Pause
		var until sql.NullInt64
		err := rows.Scan(&p.Scope, &p.Name, &until, &p.Reason, &p.By)
		p.Until = timeOf(until)
		pauses = append(pauses, p)
		return err
	}, "SELECT scope, name, paused_until, reason, operator FROM outbox_pauses WHERE "+inForce+" ORDER BY scope, name")
	return pauses, err
}

// Pause puts a pause in force, see core.Queue.
func (s *Store) Pause(ctx context.Context, p core.Pause) error {
	if p.Scope == "" || p.Name == "" || p.For < 0 {
		return errors.New("pausing: name the scope and the target, and no time below zero")
	}
	if err := s.write(ctx, func(tx *sql.Tx) error { return pause(ctx, tx, p) }); err != nil {
		return fmt.Errorf("pausing %s %q: %w", p.Scope, p.Name, err)
	}
	return nil
}

// pause leaves one that is in force alone where that is an operator's and the new
// one is not, and never shortens one.
func pause(ctx context.Context, tx *sql.Tx, p core.Pause) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM outbox_pauses WHERE scope = ? AND name = ? AND NOT "+inForce, string(p.Scope), p.Name); err != nil {
		return err
	}
	var length any
	if p.For > 0 {
		length = millis(p.For)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO outbox_pauses (scope, name, paused_until, reason, operator) VALUES (?, ?, `+sqlNow+` + ?, ?, ?)
		ON CONFLICT (scope, name) DO UPDATE SET
			paused_until = CASE WHEN excluded.paused_until IS NULL OR paused_until IS NULL THEN NULL ELSE max(paused_until, excluded.paused_until) END,
			reason = excluded.reason, operator = excluded.operator
		WHERE excluded.operator <> '' OR operator = '' AND paused_until IS NOT NULL
			AND (excluded.paused_until IS NULL OR excluded.paused_until > paused_until)`,
		string(p.Scope), p.Name, length, p.Reason, p.By)
	return err
}

// Resume ends a pause, see core.Queue.
func (s *Store) Resume(ctx context.Context, target core.PauseTarget) error {
	if err := s.write(ctx, func(tx *sql.Tx) error { return resume(ctx, tx, target) }); err != nil {
		return fmt.Errorf("resuming %s %q: %w", target.Scope, target.Name, err)
	}
	return nil
}

func resume(ctx context.Context, tx *sql.Tx, target core.PauseTarget) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM outbox_pauses WHERE scope = ? AND name = ?", string(target.Scope), target.Name)
	return err
}
