package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// errClosed ends a Watch of a store that is closed.
var errClosed = errors.New("the store is closed")

// Watch tells of changes, see core.Queue. Triggers count them in a table, by
// sink, so that it hears of what any program writes. Several changes of one sink
// that it finds at once are one.
func (s *Store) Watch(ctx context.Context, wake func(core.Wake)) error {
	if err := s.watch(ctx, wake); err != nil {
		return fmt.Errorf("watching the queue: %w", err)
	}
	return nil
}

func (s *Store) watch(ctx context.Context, wake func(core.Wake)) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.bell.listen()()
	var last int64
	if err := s.reads.QueryRowContext(ctx, "SELECT coalesce(max(rung), 0) FROM outbox_bells").Scan(&last); err != nil {
		return err
	}
	wake(core.Wake{})
	for {
		heard := s.bell.heard()
		var wakes []core.Wake
		err := each(ctx, s.reads, func(rows *sql.Rows) error {
			var w core.Wake
			err := rows.Scan(&w.Sink, &last)
			wakes = append(wakes, w)
			return err
		}, "SELECT sink, rung FROM outbox_bells WHERE rung > ? ORDER BY rung", last)
		if err != nil {
			return err
		}
		for _, w := range wakes {
			wake(w)
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.bell.done.Done():
			return errClosed
		}
	}
}
