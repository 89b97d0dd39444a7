package tests

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// sqliteStage is where a test with one SQLite file plays.
type sqliteStage struct {
	t         *testing.T
	path      string
	config    string
	store     *sqlitestore.Store
	db        *sql.DB // the program's own connections
	collector *trial.Collector
}

func newSQLiteStage(t *testing.T, relay ...string) *sqliteStage {
	t.Helper()
	_, err := relayBinary() // not while events are waiting
	require.NoError(t, err)
	brokers, topic := servicetest.Kafka(t), servicetest.Topic(t, 3)
	s := &sqliteStage{t: t, path: filepath.Join(t.TempDir(), "shop.db"), config: filepath.Join(t.TempDir(), "outbox.yaml")}
	relay = append(relay, "cursor_lease: "+shortLease.String())
	require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `store:
  sqlite: {path: %q}
sinks:
  events: {type: kafka, brokers: ["%s"], topic: %q}
routes:
  - {name: kafka, sink: events, window: %d, batch: {events: 100}}
relay: {%s}
`, s.path, strings.Join(brokers, `", "`), topic, mostRepeats, strings.Join(relay, ", ")), 0o600))
	s.store, err = sqlitestore.New(s.path, sqlitestore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.store.Close()) })
	require.NoError(t, s.store.Migrate(t.Context()))
	s.db, err = sql.Open("sqlite", sqlitestore.DSN(s.path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.db.Close()) })
	for _, table := range []string{
		"CREATE TABLE accounts (key TEXT PRIMARY KEY, version INTEGER NOT NULL)",
		"CREATE TABLE ledger (id TEXT PRIMARY KEY, key TEXT NOT NULL, version INTEGER NOT NULL)",
	} {
		_, err := s.db.ExecContext(t.Context(), table)
		require.NoError(t, err)
	}
	s.collector = trial.NewCollector(brokers, topic)
	t.Cleanup(s.collector.Close)
	return s
}

// tryStart starts a relay, which is killed at the latest when the test ends.
func (s *sqliteStage) tryStart(env ...string) (*trial.Relay, error) {
	bin, err := relayBinary()
	if err != nil {
		return nil, err
	}
	relay, err := trial.StartRelay(bin, s.config, env...)
	if err == nil {
		s.t.Cleanup(relay.Kill)
	}
	return relay, err
}

func (s *sqliteStage) start(env ...string) *trial.Relay {
	s.t.Helper()
	relay, err := s.tryStart(env...)
	require.NoError(s.t, err)
	return relay
}

var errRollBack = errors.New("the test rolls the transaction back")

// commit changes accounts by several goroutines until ctx ends or so many
// transactions are over. One in five is rolled back after its event was
// appended.
func (s *sqliteStage) commit(ctx context.Context, transactions int, pause time.Duration) error {
	const workers = 4
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := 0; n < transactions/workers && errs[w] == nil && ctx.Err() == nil; n++ {
				err := s.change(fmt.Sprintf("account-%02d", rand.IntN(50)), rand.IntN(5) == 0)
				if err != nil && !errors.Is(err, errRollBack) {
					errs[w] = err
				}
				time.Sleep(rand.N(pause)) // the rate of the workload
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// change is one transaction of the program, on a connection of its own: it raises
// the version of an account, tells it by an event, and enters both in the ledger.
func (s *sqliteStage) change(key string, rollBack bool) error {
	ctx := context.WithoutCancel(s.t.Context()) // a transaction is not cut short
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	var version int64
	err = tx.QueryRowContext(ctx, "INSERT INTO accounts VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET version = version + 1 RETURNING version", key).Scan(&version)
	if err != nil {
		return err
	}
	event := core.Event{ID: uuid.NewString(), AggregateID: key, Type: "account.changed"}
	event.Payload, err = json.Marshal(map[string]any{"account": key, "version": version})
	if err != nil {
		return err
	}
	if err := s.store.Append(ctx, tx, event); err != nil {
		return err
	}
	if rollBack {
		return errRollBack
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?, ?, ?)", event.ID, key, version); err != nil {
		return err
	}
	return tx.Commit()
}

// ledger is what was committed.
func (s *sqliteStage) ledger() (committed []trial.Committed) {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT id, key, version FROM ledger")
	require.NoError(s.t, err)
	defer rows.Close() //nolint:errcheck // read only
	for rows.Next() {
		var c trial.Committed
		require.NoError(s.t, rows.Scan(&c.ID, &c.Key, &c.Version))
		committed = append(committed, c)
	}
	require.NoError(s.t, rows.Err())
	return committed
}

// finish waits until all that was committed has arrived, stops the relay, and
// compares.
func (s *sqliteStage) finish(relay *trial.Relay, what string, bound int) {
	s.t.Helper()
	committed := s.ledger()
	require.NotEmpty(s.t, committed)
	if err := s.collector.AwaitDelivered(s.t.Context(), committed); err != nil {
		s.t.Logf("%v\nthe relay's log:\n%s", err, relay.Log())
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 40*time.Second)
	defer cancel()
	require.NoError(s.t, relay.Stop(ctx))
	require.NoError(s.t, s.collector.CatchUp(s.t.Context()))
	report := trial.Check(committed, s.collector.Records())
	results.add(s.t.Name(), what, report.Line(), fmt.Sprintf("most_repeats_after_a_takeover=%d", report.RepeatsInTerm))
	require.True(s.t, report.OK(), "%s: %s\n%v", what, report.Line(), report.Examples)
	require.LessOrEqual(s.t, report.RepeatsInTerm, bound, "repeats after one take-over")
	var check string
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "PRAGMA integrity_check").Scan(&check))
	require.Equal(s.t, "ok", check)
}
