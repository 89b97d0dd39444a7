package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigProblemsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(filepath.Join(t.TempDir(), "shop.db"), Config{
		MaxEventBytes: LargestEventBytes + 1, HashKey: []byte("short"), Retain: "some", BusyTimeout: -1, PollInterval: time.Second,
	})
	for _, want := range []string{
		"MaxEventBytes is 67108865: want 1 to 67108864", "HashKey is 5 bytes long: want 16 or more", `Retain is "some"`,
		"BusyTimeout is negative", "PollInterval is 1s: want 50ms at most",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestOnlyFilesAreTaken(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", ":memory:", "file:shop.db?mode=memory"} {
		_, err := New(path, Config{})
		require.Error(t, err, path)
	}
}

// What has a meaning in a URI may be in the name of a file.
func TestAnyPathWorks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%41&e.db")
	s := newStore(t, path, Config{})
	require.Equal(t, "/outbox/a b?c#d%41&e.db/outbox", s.Source())
	require.NoError(t, commit(t.Context(), s, event("a")))
	require.Equal(t, []string{"a"}, logOf(t, s))
	require.FileExists(t, path)
}

// SQLite keeps these by connection, so each one must have them.
func TestEachConnectionHasItsSettings(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	own := ownConnections(t, s)
	for range 3 {
		conn, err := own.Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		for pragma, want := range map[string]int64{"synchronous": 2, "busy_timeout": 10_000, "foreign_keys": 1} {
			var got int64
			require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
			require.Equal(t, want, got, pragma)
		}
	}
	var synchronous int
	require.NoError(t, s.writes.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&synchronous))
	require.Equal(t, 2, synchronous)
	_, err := s.reads.ExecContext(t.Context(), "DELETE FROM outbox")
	require.ErrorContains(t, err, "readonly")
}
