package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Tenants lists tenants with ready jobs, by name, see core.Queue. Its cost grows
// with their number, not with that of their jobs.
func (s *Store) Tenants(ctx context.Context, sink, after string, limit int) ([]string, error) {
	names, err := s.tenants(ctx, sink, after, limit)
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	return names, nil
}

func (s *Store) tenants(ctx context.Context, sink, after string, limit int) (names []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	first := "tenant > ?"
	if after == "" {
		first = "tenant >= ?"
	}
	next := "SELECT min(tenant) FROM outbox_jobs INDEXED BY outbox_jobs_tenants WHERE " + waits + " AND "
	err = each(ctx, s.reads, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `WITH RECURSIVE tenants (name) AS (
			SELECT (`+next+first+`)
			UNION ALL SELECT (`+next+`tenant > tenants.name) FROM tenants WHERE tenants.name IS NOT NULL
		) SELECT name FROM tenants WHERE name IS NOT NULL LIMIT ?`, sink, after, sink, limit)
	return names, err
}

// NextDue tells how long until a job is due, see core.Queue.
func (s *Store) NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error) {
	err := s.prepare(ctx)
	var due time.Duration
	var there bool
	if err == nil {
		due, there, err = s.nextDue(ctx, s.reads, sink, tenants, 0)
	}
	if err != nil {
		return 0, false, fmt.Errorf("looking for the next due job: %w", err)
	}
	return due, there, nil
}

// nextDue looks at the first job of each class, and of each tenant, which an
// index finds at once.
func (s *Store) nextDue(ctx context.Context, q querier, sink string, tenants []string, fromRank int) (time.Duration, bool, error) {
	var in sql.NullInt64
	ranks := "(SELECT value AS rank FROM json_each('[0, 1, 2]') WHERE value >= ?) r"
	first := "SELECT min(available_at) FROM outbox_jobs j WHERE state = 'ready' AND j.rank IS NOT NULL AND sink = ? AND j.rank = r.rank"
	query := "SELECT max(0, min(at) - " + sqlNow + ") FROM (SELECT (" + first + ") AS at FROM " + ranks + ")"
	args := []any{sink, fromRank}
	if tenants != nil {
		list, err := json.Marshal(tenants)
		if err != nil {
			return 0, false, err
		}
		query = "SELECT max(0, min(at) - " + sqlNow + ") FROM (SELECT (" + first + " AND j.tenant = t.value) AS at FROM " + ranks + ", json_each(?) t)"
		args = append(args, string(list))
	}
	if err := q.QueryRowContext(ctx, query, args...).Scan(&in); err != nil {
		return 0, false, err
	}
	return time.Duration(in.Int64) * time.Millisecond, in.Valid, nil
}
