package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

// childOf makes the test binary one of the processes below: its file.
const childOf = "OUTBOX_TEST_SQLITE_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childOf); path != "" {
		if err := child(path, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// childLease is short, so that what a killed worker held comes back in the test's
// time.
const childLease = 2 * time.Second

// child writes or works until it is killed.
func child(path, role string) error {
	s, err := New(path, Config{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for {
		switch role {
		case "write":
			err = s.InTransaction(ctx, func(tx *sql.Tx) error { return writeOne(ctx, s, tx) })
		case "work":
			err = workSome(ctx, s)
		default:
			err = fmt.Errorf("no such role: %s", role)
		}
		if err != nil {
			return err
		}
	}
}

// writeOne is a transaction of a program: business data, an event and a job.
func writeOne(ctx context.Context, s *Store, tx *sql.Tx) error {
	key := fmt.Sprintf("key-%d", rand.IntN(5))
	e := core.Event{ID: uuid.NewString(), AggregateID: key, Type: "thing.happened", Payload: []byte("{}")}
	err := tx.QueryRowContext(ctx, "INSERT INTO orders (id, key, version) VALUES (?, ?, 1 + (SELECT count(*) FROM orders WHERE key = ?)) RETURNING version",
		e.ID, key, key).Scan(&e.AggregateVersion)
	if err != nil {
		return err
	}
	if err := s.Append(ctx, tx, e); err != nil {
		return err
	}
	_, err = s.Enqueue(ctx, tx, core.Job{Event: e, Sink: "mail"})
	return err
}

// workSome has an effect for each job that it claims, and settles them.
func workSome(ctx context.Context, s *Store) error {
	if _, err := s.TakeBack(ctx, core.TakeBackRequest{MaxRedeliveries: 1000}); err != nil {
		return err
	}
	jobs, err := s.Claim(ctx, core.ClaimRequest{Sink: "mail", Max: 5, Lease: childLease, Owner: fmt.Sprint(os.Getpid())})
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		time.Sleep(time.Millisecond) // the worker's poll
		return nil
	}
	var settlements []core.Settlement
	for _, j := range jobs {
		if err := run(ctx, s, "INSERT INTO effects VALUES (?)", j.Lease.Event.ID); err != nil {
			return err
		}
		settlements = append(settlements, core.Settlement{Job: j, Kind: core.Complete})
	}
	_, err = s.Settle(ctx, settlements)
	return err
}

// TestProcessesThatShareAFileAndAreKilledLoseNothing has writers and workers in
// processes of their own, which are killed by SIGKILL at random moments.
func TestProcessesThatShareAFileAndAreKilledLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	s := newStore(t, path, Config{})
	require.NoError(t, run(t.Context(), s, "CREATE TABLE orders (id TEXT PRIMARY KEY, key TEXT, version INTEGER); CREATE TABLE effects (event TEXT)"))
	start := func(role string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], role)
		cmd.Env = append(os.Environ(), childOf+"="+path)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.False(t, cmd.ProcessState.Exited(), "a process ended by itself: %s", cmd.ProcessState)
	}
	count := func(query string) (n int) {
		require.NoError(t, s.reads.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	const kills = 12
	roles := []string{"write", "write", "work", "work"}
	running := make([]*exec.Cmd, len(roles))
	for i, role := range roles {
		running[i] = start(role)
	}
	for n := range kills {
		goal := count("SELECT count(*) FROM orders") + count("SELECT count(*) FROM effects") + 10 + rand.IntN(20)
		require.Eventually(t, func() bool {
			return count("SELECT count(*) FROM orders")+count("SELECT count(*) FROM effects") >= goal
		}, time.Minute, 5*time.Millisecond, "nothing goes on")
		kill(running[n%len(roles)])
		running[n%len(roles)] = start(roles[n%len(roles)])
	}
	kill(running[0])
	kill(running[1])
	require.Eventually(t, func() bool { return count("SELECT count(*) FROM outbox_jobs WHERE state <> 'completed'") == 0 },
		2*time.Minute, 50*time.Millisecond, "jobs are left")
	kill(running[2])
	kill(running[3])

	orders := count("SELECT count(*) FROM orders")
	t.Logf("%d orders, %d effects after %d kills", orders, count("SELECT count(*) FROM effects"), kills)
	require.Equal(t, orders, count("SELECT count(*) FROM outbox"))
	require.Equal(t, orders, count("SELECT count(*) FROM outbox_jobs"))
	require.Zero(t, count("SELECT count(*) FROM orders WHERE id NOT IN (SELECT event FROM effects)"), "lost")
	require.Zero(t, count("SELECT count(*) FROM effects WHERE event NOT IN (SELECT id FROM orders)"), "phantom")
	// Each key's versions come in the order of their commits.
	next := map[string]int64{}
	c := acquire(t, s)
	for read := 0; read < orders; {
		batch, err := c.Read(t.Context(), core.ReadLimit{})
		require.NoError(t, err)
		read += len(batch.Entries)
		for _, e := range batch.Entries {
			next[e.Event.AggregateID]++
			require.Equal(t, next[e.Event.AggregateID], e.Event.AggregateVersion)
		}
	}
	require.Equal(t, []string{"ok"}, texts(t, s, "PRAGMA integrity_check"))
}
