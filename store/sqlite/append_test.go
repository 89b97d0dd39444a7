package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

// ownConnections are a program's own connections to the store's file.
func ownConnections(t *testing.T, s *Store) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", DSN(s.path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestAProgramsOwnTransactionDecides(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	db := ownConnections(t, s)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT PRIMARY KEY)")
	require.NoError(t, err)
	for _, id := range []string{"rolled-back", "committed"} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (?)", id)
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), tx, event(id)))
		_, err = s.Enqueue(t.Context(), tx, core.Job{Event: event(id), Sink: "mail"})
		require.NoError(t, err)
		if id == "committed" {
			require.NoError(t, tx.Commit())
			s.Notify()
			continue
		}
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, s.Append(t.Context(), tx, event("late")), core.ErrNoTransaction)
	}
	require.Equal(t, []string{"committed"}, logOf(t, s))
	require.Equal(t, []string{"committed"}, texts(t, s, "SELECT event_id FROM outbox_jobs"))
	require.Equal(t, []string{"committed"}, texts(t, s, "SELECT id FROM orders"))
}

func TestAFailedAppendLeavesNothingInAProgramsTransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	require.NoError(t, commit(t.Context(), s, event("there")))
	tx, err := ownConnections(t, s).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Append(t.Context(), tx, event("first")))
	err = s.Append(t.Context(), tx, event("with-it"), event("there"))
	duplicate, ok := errors.AsType[*core.DuplicateIDError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "there", duplicate.ID)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"there", "first"}, logOf(t, s))
}

func TestATransactionOfAnotherFileIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	other := newStore(t, filepath.Join(t.TempDir(), "other.db"), Config{})
	require.ErrorIs(t, other.InTransaction(t.Context(), func(tx *sql.Tx) error {
		return s.Append(t.Context(), tx, event("a"))
	}), ErrOtherDatabase)
	require.ErrorIs(t, other.InTransaction(t.Context(), func(tx *sql.Tx) error {
		_, err := s.Enqueue(t.Context(), tx, core.Job{Event: event("a"), Sink: "mail"})
		return err
	}), ErrOtherDatabase)
	require.Empty(t, logOf(t, other))
	empty, err := sql.Open("sqlite", DSN(filepath.Join(t.TempDir(), "empty.db")))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, empty.Close()) })
	tx, err := empty.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // nothing was written
	require.ErrorIs(t, s.Append(t.Context(), tx, event("a")), ErrOtherDatabase)
}

// TestNoIDAppearsBelowOneThatWasSeen has writers whose transactions stay open for
// a while, and of which some roll back, on connections of their own, while a
// reader notes the ids as they appear.
func TestNoIDAppearsBelowOneThatWasSeen(t *testing.T) {
	t.Parallel()
	const writers, each = 6, 30
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	var all sync.WaitGroup
	for w := range writers {
		db := ownConnections(t, s)
		all.Go(func() {
			for i := range each {
				tx, err := db.BeginTx(t.Context(), nil)
				if err == nil {
					for n := range 3 {
						err = errors.Join(err, s.Append(t.Context(), tx, event(fmt.Sprintf("%d-%d-%d", w, i, n))))
					}
				}
				switch {
				case err != nil:
					t.Errorf("writing: %v", err)
					return
				case i%3 == 0:
					err = tx.Rollback()
				default:
					err = tx.Commit()
				}
				if err != nil {
					t.Errorf("ending a transaction: %v", err)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	seen, highest := map[string]bool{}, 0
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		// All that is there, each time: a late one would show.
		newest := highest
		for _, text := range texts(t, s, "SELECT id FROM outbox ORDER BY id") {
			if seen[text] {
				continue
			}
			seen[text] = true
			id, err := strconv.Atoi(text)
			require.NoError(t, err)
			require.Greater(t, id, highest, "an id appeared below one that was seen before")
			newest = max(newest, id)
		}
		highest = newest
	}
	require.Len(t, seen, writers*each*3*2/3)
}

func TestReadersWakeUp(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{PollInterval: DefaultPollInterval, ReadWait: time.Minute})
	c := acquire(t, s)
	db := ownConnections(t, s)
	read := make(chan time.Time, 1)
	wait := func(id string, notify bool) time.Duration {
		go func() {
			batch, err := c.Read(t.Context(), core.ReadLimit{})
			if err != nil || len(batch.Entries) != 1 || batch.Entries[0].Event.ID != id {
				t.Errorf("read %+v, %v; want %s", batch.Entries, err, id)
			}
			read <- time.Now()
		}()
		require.Eventually(t, s.bell.awaited, 10*time.Second, time.Millisecond)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), tx, event(id)))
		require.NoError(t, tx.Commit())
		committed := time.Now()
		if notify {
			s.Notify()
		}
		return (<-read).Sub(committed)
	}
	// The least of several: the machine may be busy.
	told, polled := time.Hour, time.Hour
	for i := range 5 {
		told = min(told, wait(fmt.Sprintf("told-%d", i), true))
		polled = min(polled, wait(fmt.Sprintf("polled-%d", i), false))
	}
	t.Logf("after a commit: %v with Notify, %v by polling", told, polled)
	require.Less(t, told, DefaultPollInterval)
	require.Less(t, polled, 5*DefaultPollInterval)
}

func TestAConcurrentEndOfTheContextLeavesTheStoreUsable(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{})
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_ = commit(ctx, s, event(strconv.Itoa(i))) // a commit or an error
	}
	require.NoError(t, commit(t.Context(), s, event("last")))
}
