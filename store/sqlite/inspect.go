package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Layout tells which version of the layout the file has, 0 where there is no
// outbox in it or no file, and which one Migrate makes. It makes nothing.
func (s *Store) Layout(ctx context.Context) (stored, known int, err error) {
	err = s.exists(ctx)
	if err == nil {
		err = s.reads.QueryRowContext(ctx, "SELECT layout FROM outbox_meta").Scan(&stored)
	}
	if errors.Is(err, core.ErrNoOutbox) {
		return 0, len(s.steps), nil
	}
	if err != nil {
		return 0, len(s.steps), fmt.Errorf("reading the layout of %s: %w", s.path, err)
	}
	return stored, len(s.steps), nil
}

// LeaseUntil tells when the lease of a cursor ends, zero for one that doesn't
// exist.
func (s *Store) LeaseUntil(ctx context.Context, cursor string) (time.Time, error) {
	var until int64
	err := s.exists(ctx)
	if err == nil {
		err = s.reads.QueryRowContext(ctx, "SELECT lease_until FROM outbox_cursors WHERE name = ?", cursor).Scan(&until)
	}
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, core.ErrNoOutbox) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the lease of cursor %s: %w", cursor, err)
	}
	return time.UnixMilli(until).UTC(), nil
}

// Newest returns at most n of the newest events, the newest first, with their
// Type, Aggregate, Tenant and Version alone.
func (s *Store) Newest(ctx context.Context, n int) ([]core.Event, error) {
	var events []core.Event
	err := s.exists(ctx)
	if err == nil {
		err = each(ctx, s.reads, func(rows *sql.Rows) error {
			var e core.Event
			err := rows.Scan(&e.Type, &e.Aggregate, &e.Tenant, &e.Version)
			events = append(events, e)
			return err
		}, "SELECT event_type, aggregate, tenant, version FROM outbox ORDER BY id DESC LIMIT ?", n)
	}
	if err != nil && !errors.Is(err, core.ErrNoOutbox) {
		return nil, fmt.Errorf("reading the newest events: %w", err)
	}
	return events, nil
}
