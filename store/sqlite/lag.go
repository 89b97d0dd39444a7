package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// maxLag is how many events Lag counts at most.
const maxLag = 100_000

// Lag counts what the cursor has still to settle, see core.Log, up to 100,000
// events. It fails for a cursor that doesn't exist.
func (s *Store) Lag(ctx context.Context, cursor string) (core.Lag, error) {
	var lag core.Lag
	err := s.prepare(ctx)
	if err == nil {
		err = s.read(ctx, func(tx *sql.Tx) error {
			lag, err = lagOf(ctx, tx, cursor)
			return err
		})
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = errors.New("there is no such cursor")
	}
	if err != nil {
		return core.Lag{}, fmt.Errorf("measuring the lag of cursor %q: %w", cursor, err)
	}
	return lag, nil
}

// lagOf returns sql.ErrNoRows where there is no such cursor.
func lagOf(ctx context.Context, tx *sql.Tx, cursor string) (core.Lag, error) {
	var lag core.Lag
	var after, now int64
	err := tx.QueryRowContext(ctx, "SELECT max(begin_after, position), "+sqlNow+" FROM outbox_cursors WHERE name = ?", cursor).Scan(&after, &now)
	if err != nil {
		return lag, err
	}
	var oldest sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT count(*), min(written_at) FROM (SELECT o.written_at FROM outbox_cursors c, outbox o
		WHERE c.name = ? AND o.id > ? AND `+notSkipped+` ORDER BY o.id LIMIT ?)`, cursor, after, maxLag).Scan(&lag.Events, &oldest)
	if oldest.Valid {
		// Written in this very millisecond it is older than nothing, too.
		lag.Age = max(time.Duration(now-oldest.Int64)*time.Millisecond, time.Microsecond)
	}
	return lag, err
}
