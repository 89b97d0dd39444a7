package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

func TestManyProcessesThatStartAtOnceMakeTheTablesOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	var all sync.WaitGroup
	stores := make([]*Store, 8)
	errs := make([]error, len(stores))
	for i := range stores {
		var err error
		stores[i], err = New(path, Config{}) // with connections of its own, as a process has
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, stores[i].Close()) })
	}
	for i, s := range stores {
		all.Go(func() { errs[i] = s.Migrate(t.Context()) })
	}
	all.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		require.Equal(t, stores[0].id, stores[i].id, "two stores made tables of their own")
	}
	var mode string
	require.NoError(t, stores[0].writes.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	require.Equal(t, "wal", mode)
}

func TestMigrateChangesNothingThatIsThere(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	require.NoError(t, commit(t.Context(), s, event("a")))
	before := dump(t, s)
	require.NoError(t, s.Migrate(t.Context()))
	require.Equal(t, before, dump(t, s))
	require.Equal(t, []string{"a"}, logOf(t, s))
}

// TestAnOlderLayoutIsMigratedOnce has a version to come, whose step would fail if
// it ran twice.
func TestAnOlderLayoutIsMigratedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	old := newStore(t, path, Config{})
	require.NoError(t, commit(t.Context(), old, event("a")))
	next := append(slices.Clone(migrations), []string{"ALTER TABLE outbox_cursors ADD COLUMN colour TEXT", "CREATE TABLE outbox_colours (name TEXT)"})
	var all sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		s, err := New(path, Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		s.steps = next
		if i == 0 {
			_, err := s.Stats(t.Context()) // who only looks migrates nothing
			require.ErrorContains(t, err, "the stored layout has version 1")
		}
		all.Go(func() { errs[i] = s.Migrate(t.Context()) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"2"}, texts(t, old, "SELECT layout FROM outbox_meta"))
	require.Equal(t, []string{"a"}, logOf(t, old))
	require.ErrorIs(t, commit(t.Context(), old, event("b")), core.ErrNewerLayout)
}

// TestAMigrationThatFailsLeavesTheOldLayout: it is one transaction.
func TestAMigrationThatFailsLeavesTheOldLayout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	old := newStore(t, path, Config{})
	before := dump(t, old)
	s, err := New(path, Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.steps = append(slices.Clone(migrations), []string{"CREATE TABLE outbox_colours (name TEXT)", "nonsense"})
	require.ErrorContains(t, s.Migrate(t.Context()), "nonsense")
	require.Equal(t, before, dump(t, old))
	require.NoError(t, commit(t.Context(), old, event("a")))
}

func TestNewerLayoutIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	old := newStore(t, path, Config{})
	_, err := old.writes.ExecContext(t.Context(), "UPDATE outbox_meta SET layout = layout + 1")
	require.NoError(t, err)

	s, err := New(path, Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	err = s.Migrate(t.Context())
	require.ErrorIs(t, err, core.ErrNewerLayout)
	require.ErrorContains(t, err, "version 2, this one knows 1")
	_, err = s.Stats(t.Context())
	require.ErrorIs(t, err, core.ErrNewerLayout)

	// One that was running when another process migrated the file.
	require.ErrorIs(t, commit(t.Context(), old, event("a")), core.ErrNewerLayout)
	_, err = old.Acquire(t.Context(), core.AcquireRequest{Name: "route", Owner: "me"})
	require.ErrorIs(t, err, core.ErrNewerLayout)
}

func TestNothingIsMadeByLooking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	s, err := New(path, Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	looks := map[string]func() error{
		"Stats":   func() error { _, err := s.Stats(t.Context()); return err },
		"Job":     func() error { _, err := s.Job(t.Context(), "a"); return err },
		"Explain": func() error { _, err := s.Explain(t.Context(), "a"); return err },
		"Acts":    func() error { _, err := s.Acts(t.Context(), 1); return err },
		"Retry": func() error {
			_, err := s.Retry(t.Context(), core.JobFilter{All: true}, core.Act{By: "me"})
			return err
		},
		"PauseBy": func() error {
			return s.PauseBy(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}}, core.Act{By: "me"})
		},
		"Lint": func() error { _, err := s.Lint(t.Context(), LintRequest{}); return err },
	}
	for name, look := range looks {
		require.ErrorIs(t, look(), core.ErrNoOutbox, name)
	}
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	// A database of the program without an outbox in it.
	db, err := sql.Open("sqlite", DSN(path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER)")
	require.NoError(t, err)
	for name, look := range looks {
		require.ErrorIs(t, look(), core.ErrNoOutbox, name)
	}
	var tables int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&tables))
	require.Equal(t, 1, tables)
}

// dump is all that the schema says.
func dump(t *testing.T, s *Store) []string {
	t.Helper()
	return texts(t, s, "SELECT name || coalesce(sql, '') FROM sqlite_schema ORDER BY name")
}

// logOf are the ids of the events in the log.
func logOf(t *testing.T, s *Store) []string {
	t.Helper()
	return texts(t, s, "SELECT event_id FROM outbox ORDER BY id")
}

func texts(t *testing.T, s *Store, query string, args ...any) (found []string) {
	t.Helper()
	require.NoError(t, each(t.Context(), s.reads, func(rows *sql.Rows) error {
		var text string
		err := rows.Scan(&text)
		found = append(found, text)
		return err
	}, query, args...))
	return found
}

func event(id string) core.Event {
	return core.Event{ID: id, AggregateID: "key", Type: "thing.happened", Payload: []byte(`{}`)}
}

// commit appends events in a transaction of the store's.
func commit(ctx context.Context, s *Store, events ...core.Event) error {
	return s.InTransaction(ctx, func(tx *sql.Tx) error { return s.Append(ctx, tx, events...) })
}

// acquire takes a cursor that reads the whole log.
func acquire(t *testing.T, s *Store) core.Cursor {
	t.Helper()
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "route", Owner: "me", Lease: time.Minute})
	require.NoError(t, err)
	return c
}
