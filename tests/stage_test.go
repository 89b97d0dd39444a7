package tests

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// stage is where one test plays: a database, a topic and the configuration of
// relays between them.
type stage struct {
	t         *testing.T
	config    trial.Config
	db        *mongo.Database
	store     *mongostore.Store
	topic     string
	collector *trial.Collector
}

// servers are those of a test that brings its own; empty fields are the shared
// ones.
type servers struct {
	uri     string
	brokers []string
}

const (
	// shortLease is that of relays that are killed. The others have the default:
	// on a busy machine a process that lives may lose a short one, and repeat.
	shortLease = 500 * time.Millisecond
	// mostRepeats bounds what is repeated after a kill: the events read beyond
	// the saved position (relay.Route.Window).
	mostRepeats = 1000
)

func newStage(t *testing.T, s servers, cfg mongostore.Config) *stage {
	t.Helper()
	_, err := relayBinary() // not while events are waiting
	require.NoError(t, err)
	if s.uri == "" {
		s.uri = servicetest.MongoURL(t)
	}
	if s.brokers == nil {
		s.brokers = servicetest.Kafka(t)
	}
	db := servicetest.DatabaseOf(t, servicetest.Client(t, s.uri))
	topic := servicetest.TopicOn(t, s.brokers, 3)
	store, err := mongostore.New(db, cfg)
	require.NoError(t, err)
	require.NoError(t, store.EnsureIndexes(t.Context()))
	collector := trial.NewCollector(s.brokers, topic)
	t.Cleanup(collector.Close)
	return &stage{
		t: t, db: db, store: store, topic: topic, collector: collector,
		config: trial.Config{
			URI: s.uri, Database: db.Name(), Brokers: s.brokers, Topic: topic,
			RouteOptions: []string{fmt.Sprintf("window: %d", mostRepeats), "batch: {events: 100}"},
		},
	}
}

// start starts a relay, which is killed at the latest when the test ends.
func (s *stage) start(env ...string) *trial.Relay {
	s.t.Helper()
	relay, err := s.tryStart(env...)
	require.NoError(s.t, err)
	return relay
}

func (s *stage) tryStart(env ...string) (*trial.Relay, error) {
	s.t.Helper()
	config, err := s.config.Write(s.t.TempDir())
	if err != nil {
		return nil, err
	}
	bin, err := relayBinary()
	if err != nil {
		return nil, err
	}
	relay, err := trial.StartRelay(bin, config, env...)
	if err == nil {
		s.t.Cleanup(relay.Kill)
	}
	return relay, err
}

// hold starts a relay and waits until it holds the cursor.
func (s *stage) hold(env ...string) *trial.Relay {
	s.t.Helper()
	relay := s.start(env...)
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(s.t, relay.Await(ctx, "holding the cursor"))
	return relay
}

// stop ends a relay by SIGTERM and requires that it ends well.
func (s *stage) stop(relay *trial.Relay) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 40*time.Second)
	defer cancel()
	require.NoError(s.t, relay.Stop(ctx))
}

// workload makes an order service on the stage.
func (s *stage) workload(transactions, keys int) *trial.Workload {
	s.t.Helper()
	w := &trial.Workload{
		Outbox: s.store, Database: s.db, Type: "account.changed",
		Transactions: transactions, Keys: keys, Seed: uint64(transactions),
	}
	require.NoError(s.t, w.Prepare(s.t.Context()))
	return w
}

// follow keeps the collector reading until the test ends.
func (s *stage) follow() {
	s.t.Helper()
	background(s.t, s.collector.Follow)
}

// killThrough runs the workload while relays are killed, and afterwards until
// the last event has arrived. It returns the number of kills.
func (s *stage) killThrough(w *trial.Workload) (kills int) {
	s.t.Helper()
	s.config.Lease = shortLease
	s.follow()
	killing, done := context.WithCancel(s.t.Context())
	defer done()
	failed := make(chan error, 1)
	go func() {
		failed <- w.Run(s.t.Context())
		done()
	}()
	relay, kills, err := trial.Killing{
		Start:     func() (*trial.Relay, error) { return s.tryStart() },
		Collector: s.collector,
	}.Run(killing)
	require.NoError(s.t, err)
	require.NoError(s.t, <-failed)
	s.finish(relay)
	return kills
}

// finish waits until all that was committed has arrived, and stops the relay.
func (s *stage) finish(relay *trial.Relay) {
	s.t.Helper()
	committed, err := trial.Ledger(s.t.Context(), s.db)
	require.NoError(s.t, err)
	err = s.collector.AwaitDelivered(s.t.Context(), committed)
	if err != nil {
		s.t.Logf("%v\nthe relay's log:\n%s", err, relay.Log())
	}
	s.stop(relay)
}

// check compares what arrived with what was committed, and enters it in the
// results. bound is the documented number of repeats after one take-over.
func (s *stage) check(what string, bound int) {
	s.t.Helper()
	committed, err := trial.Ledger(s.t.Context(), s.db)
	require.NoError(s.t, err)
	s.checkAgainst(committed, what, bound)
}

func (s *stage) checkAgainst(committed []trial.Committed, what string, bound int) {
	s.t.Helper()
	require.NotEmpty(s.t, committed, "the workload committed nothing")
	require.NoError(s.t, s.collector.CatchUp(s.t.Context()))
	report := trial.Check(committed, s.collector.Records())
	results.add(s.t.Name(), what, report.Line(), fmt.Sprintf("most_repeats_after_a_takeover=%d", report.RepeatsInTerm))
	require.True(s.t, report.OK(), "%s: %s\n%v", what, report.Line(), report.Examples)
	require.LessOrEqual(s.t, report.RepeatsInTerm, bound, "%s: repeats after one take-over", what)
}

// relayBinary builds the relay with crash points once, for all tests.
var relayBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "outbox-tests-")
	if err != nil {
		return "", err
	}
	relayDir = dir
	return trial.BuildRelay(context.Background(), dir, "crashpoints")
})

var relayDir string

func removeRelay() {
	if relayDir != "" {
		_ = os.RemoveAll(relayDir)
	}
}
