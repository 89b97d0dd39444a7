package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

// state is what a database holds, in numbers. Each transaction of the test makes
// another one.
type state struct {
	events, orders, position, settled, ready, active, completed int64
}

func stateOf(ctx context.Context, q querier) (s state, err error) {
	err = q.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM orders),
		(SELECT coalesce(max(position), 0) FROM outbox_cursors), (SELECT coalesce(max(settled), 0) FROM outbox_cursors),
		(SELECT count(*) FROM outbox_jobs WHERE state = 'ready'), (SELECT count(*) FROM outbox_jobs WHERE state = 'active'),
		(SELECT count(*) FROM outbox_jobs WHERE state = 'completed')`).
		Scan(&s.events, &s.orders, &s.position, &s.settled, &s.ready, &s.active, &s.completed)
	return s, err
}

// TestAWALThatIsCutAnywhereIsAnEarlierState cuts the write-ahead log at random
// offsets, as a loss of power or a full disk may leave it. What SQLite then finds
// is exactly one of the states that there were: events, business data, cursor
// and jobs fit together.
func TestAWALThatIsCutAnywhereIsAnEarlierState(t *testing.T) {
	t.Parallel()
	const cuts = 150
	path := filepath.Join(t.TempDir(), "shop.db")
	first := newStore(t, path, Config{})
	require.NoError(t, run(t.Context(), first, "CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
	require.NoError(t, first.Close()) // writes the WAL into the file

	s := newStore(t, path, Config{})
	_, err := s.writes.ExecContext(t.Context(), "PRAGMA wal_autocheckpoint = 0")
	require.NoError(t, err)
	states := map[state]bool{}
	note := func() {
		now, err := stateOf(t.Context(), s.reads)
		require.NoError(t, err)
		states[now] = true
	}
	note()
	c := acquire(t, s)
	for i := range 60 {
		require.NoError(t, s.InTransaction(t.Context(), func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
				return err
			}
			if err := s.Append(t.Context(), tx, event(fmt.Sprintf("%d-a", i)), event(fmt.Sprintf("%d-b", i))); err != nil {
				return err
			}
			_, err := s.Enqueue(t.Context(), tx, core.Job{Event: event(fmt.Sprint(i)), Sink: "mail"})
			return err
		}))
		note()
		if i%3 == 0 {
			batch, err := c.Read(t.Context(), core.ReadLimit{})
			require.NoError(t, err)
			var marks []core.Mark
			for _, e := range batch.Entries[:len(batch.Entries)-1] {
				marks = append(marks, e.Mark)
			}
			require.NoError(t, c.Save(t.Context(), marks))
			note()
		}
		if i%4 == 0 {
			jobs, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 3})
			require.NoError(t, err)
			note()
			_, err = s.Settle(t.Context(), []core.Settlement{{Job: jobs[0], Kind: core.Complete}})
			require.NoError(t, err)
			note()
		}
	}
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	wal, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.Greater(t, len(wal), 100_000, "the states are not in the WAL")

	seed := uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	t.Logf("seed %d, a WAL of %d bytes, %d states", seed, len(wal), len(states))
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
	found := map[state]bool{}
	for n := range cuts {
		cut := random.IntN(len(wal) + 1)
		if n == 0 {
			cut = len(wal)
		}
		after := openCut(t, file, wal[:cut])
		require.True(t, states[after], "cut after %d bytes: %+v was never a state", cut, after)
		require.LessOrEqual(t, after.position, after.events)
		require.Equal(t, 2*after.orders, after.events)
		require.Equal(t, after.orders, after.ready+after.active+after.completed)
		found[after] = true
	}
	require.Greater(t, len(found), cuts/4, "the cuts hit few states")
}

// openCut opens a database that has a part of its WAL, tells what it holds, and
// goes on with it.
func openCut(t *testing.T, file, wal []byte) state {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cut.db")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	require.NoError(t, os.WriteFile(path+"-wal", wal, 0o600))
	s, err := New(path, Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	var check string
	require.NoError(t, s.writes.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check))
	require.Equal(t, "ok", check)
	after, err := stateOf(t.Context(), s.reads)
	require.NoError(t, err)
	require.NoError(t, commit(t.Context(), s, event("next")))
	ids := texts(t, s, "SELECT id FROM outbox ORDER BY id DESC LIMIT 1")
	require.Equal(t, fmt.Sprint(after.events+1), ids[0], "ids go on where the log ends")
	return after
}
