package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHotStatementsReadByAnIndex: none of these may go through a whole table, or
// sort one.
func TestHotStatementsReadByAnIndex(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	for name, one := range map[string]struct {
		query string
		args  []any
		index string
	}{
		"read": {
			"SELECT o.id FROM outbox_cursors c, outbox o WHERE c.name = ? AND o.id > ? AND " + notSkipped + " ORDER BY o.id LIMIT ?",
			[]any{"route", 1, 500},
			"INTEGER PRIMARY KEY",
		},
		"claim": {
			"SELECT seq FROM outbox_jobs WHERE " + waits + " AND rank = ? AND available_at <= " + sqlNow + " ORDER BY available_at, seq LIMIT ? OFFSET ?",
			[]any{"mail", 1, 10, 0},
			"outbox_jobs_due",
		},
		"claim of a tenant": {
			"SELECT seq FROM outbox_jobs WHERE " + waits + " AND tenant = ? AND rank = ? AND available_at <= " + sqlNow + " ORDER BY available_at, seq LIMIT ? OFFSET ?",
			[]any{"mail", "acme", 1, 10, 0},
			"outbox_jobs_tenants",
		},
		"take back": {
			"SELECT seq FROM outbox_jobs WHERE " + lapsed + " ORDER BY lease_until, seq LIMIT ?",
			[]any{5000, 10},
			"outbox_jobs_leases",
		},
		"next due": {
			"SELECT min(available_at) FROM outbox_jobs j WHERE state = 'ready' AND j.rank IS NOT NULL AND sink = ? AND j.rank = ?",
			[]any{"mail", 1},
			"outbox_jobs_due",
		},
		"parked": {
			"SELECT seq FROM outbox_jobs WHERE cursor = ? AND position > ?",
			[]any{"route", 1},
			"outbox_jobs_parked",
		},
		"open": {
			"SELECT seq FROM outbox_jobs WHERE cursor = ? AND " + isOpen + " ORDER BY position",
			[]any{"route"},
			"outbox_jobs_parked",
		},
		"failed": {
			"SELECT seq FROM outbox_jobs WHERE state = ? AND state IN ('failed', 'unknown') AND seq > ? ORDER BY seq LIMIT ?",
			[]any{"failed", 1, 10},
			"outbox_jobs_ended",
		},
		"clean": {
			"SELECT seq FROM outbox_jobs WHERE expire_at <= " + sqlNow + " ORDER BY expire_at LIMIT ?",
			[]any{10},
			"outbox_jobs_expiring",
		},
		"bells": {
			"SELECT sink, rung FROM outbox_bells WHERE rung > ? ORDER BY rung",
			[]any{1},
			"outbox_bells_rung",
		},
	} {
		var plan []string
		require.NoError(t, each(t.Context(), s.reads, func(rows *sql.Rows) error {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		}, "EXPLAIN QUERY PLAN "+one.query, one.args...), name)
		text := strings.Join(plan, "\n")
		require.Contains(t, text, one.index, name)
		require.NotContains(t, text, "SCAN outbox\n", name)
		require.NotContains(t, text, "SCAN outbox_jobs", name)
		require.NotContains(t, text, "TEMP B-TREE", name)
	}
}

// TestTheTablesRefuseWhatCouldNotBeDelivered: programs in other languages write
// with plain SQL.
func TestTheTablesRefuseWhatCouldNotBeDelivered(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	good := "INSERT INTO outbox (aggregate_id, event_type, payload) VALUES ('order-1', 'order.placed', '{\"total\": 1}')"
	require.NoError(t, run(t.Context(), s, good))
	require.NoError(t, run(t.Context(), s, "INSERT INTO outbox_jobs (sink, event_type, payload) VALUES ('mail', 'mail.wanted', '{}')"))
	for _, bad := range []string{
		"INSERT INTO outbox (event_type, payload) VALUES ('order.placed', '{}')",
		"INSERT INTO outbox (aggregate_id, event_type, payload) VALUES ('order-1', '', '{}')",
		"INSERT INTO outbox (aggregate_id, event_type) VALUES ('order-1', 'order.placed')",
		"INSERT INTO outbox (aggregate_id, event_type, payload, headers) VALUES ('order-1', 'order.placed', '{}', 'x')",
		"INSERT INTO outbox (aggregate_id, event_type, payload, headers) VALUES ('order-1', 'order.placed', '{}', '[]')",
		"INSERT INTO outbox (aggregate_id, event_type, payload, occurred_at) VALUES ('order-1', 'order.placed', '{}', 'now')",
		"INSERT INTO outbox_jobs (sink, event_type, payload) VALUES ('', 'mail.wanted', '{}')",
		"INSERT INTO outbox_jobs (sink, event_type, payload, rank) VALUES ('mail', 'mail.wanted', '{}', 3)",
		"INSERT INTO outbox_jobs (sink, event_type, payload, rank) VALUES ('mail', 'mail.wanted', '{}', NULL)",
		"INSERT INTO outbox_jobs (sink, event_type, payload, state) VALUES ('mail', 'mail.wanted', '{}', 'new')",
	} {
		require.ErrorContains(t, run(t.Context(), s, bad), "constraint", bad)
	}
	// What they don't see, lint does.
	require.NoError(t, run(t.Context(), s, "INSERT INTO outbox (event_id, aggregate_id, event_type, payload, headers) VALUES ('odd', 'order-1', 'order.placed', '{}', '{\"x y\": \"1\"}')"))
	report, err := s.Lint(t.Context(), LintRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 2, report.Events)
	require.EqualValues(t, 1, report.Jobs)
	require.Len(t, report.Findings, 1)
	require.Equal(t, []string{"odd"}, report.Findings[0].Examples)
	require.Equal(t, `Headers["x y"]`, report.Findings[0].Field)
}
