package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestARelayKilledAtAnyMomentLosesNothing kills relays by SIGKILL at random
// moments while an order service commits.
func TestARelayKilledAtAnyMomentLosesNothing(t *testing.T) {
	for round := range scale(3, 30) {
		t.Run(fmt.Sprintf("round-%02d", round+1), func(t *testing.T) {
			s := newStage(t, servers{}, mongostore.Config{})
			w := s.workload(scale(1500, 20_000), scale(100, 500))
			w.Seed += uint64(round)
			kills := s.killThrough(w)
			require.Positive(t, kills, "the relay was never killed")
			p := w.Progress()
			require.Zero(t, p.Failed, "transactions failed although the database was healthy")
			s.check(fmt.Sprintf("kills=%d aborted=%d conflicts=%d", kills, p.Aborted, p.Conflicts), mostRepeats)
		})
	}
}

// crashPoints are the places at which a process that dies leaves a state of its
// own kind behind.
var crashPoints = []struct {
	name string
	// atMost is the largest number of visits to the place before the process
	// dies there.
	atMost int
}{
	{"kafka.sent", 5},      // the request is on its way, no acknowledgement
	{"relay.delivered", 5}, // acknowledged, position not saved
	{"relay.saving", 5},    // about to save the position
	{"mongo.takeover", 1},  // the fence is raised, nothing read
	{"mongo.cleaner", 1},   // the cleaner is at work
}

// TestARelayThatDiesAtANamedPlaceLosesNothing lets relays die at each crash
// point, again and again, while an order service commits.
func TestARelayThatDiesAtANamedPlaceLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	s.config.Lease = shortLease
	s.config.Store = []string{"margin: 5s"} // so that the cleaner has something to do
	s.config.Relay = []string{"retention: 1s", "clean_interval: 200ms"}
	w := s.workload(1<<30, 100)
	w.PerSecond, w.Workers = 200, 4
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	s.follow()
	for _, point := range crashPoints {
		// One that lives in between saves a position: the next deaths are
		// measured from there.
		healthy := s.hold()
		before, _ := s.collector.Events()
		eventually(t, time.Minute, "the delivery by a healthy relay", func() bool {
			n, _ := s.collector.Events()
			return n > before+100
		})
		s.stop(healthy)
		for n := range scale(1, 10) {
			s.dieAt(point.name, 1+n%point.atMost)
		}
	}
	stop()
	<-committing
	s.finish(s.start())
	s.check("", mostRepeats)
}

// TestARelayThatDiesBetweenScanAndStreamLosesNothing lets relays die when they
// have read the log and not yet opened the stream.
func TestARelayThatDiesBetweenScanAndStreamLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	s.config.Lease = shortLease
	w := s.workload(scale(300, 2000), 100)
	require.NoError(t, w.Run(t.Context()))
	w.Transactions, w.PerSecond, w.Workers = 1<<30, 100, 4
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	for range scale(1, 10) {
		s.dieAt("mongo.scan-to-stream", 1)
	}
	stop()
	<-committing
	s.follow()
	s.finish(s.start())
	committed, err := trial.Ledger(t.Context(), s.db)
	require.NoError(t, err)
	// Each scan may repeat what the one before it read within the margin.
	s.checkAgainst(committed, "", len(committed))
}

// dieAt starts a relay that dies at the nth visit to a crash point.
func (s *stage) dieAt(point string, nth int) {
	s.t.Helper()
	relay := s.start(fmt.Sprintf("OUTBOX_CRASH=%s:%d", point, nth))
	select {
	case <-relay.Done():
	case <-time.After(time.Minute):
		require.Fail(s.t, "crash point was not reached", "%s\n%s", point, relay.Log())
	}
	require.True(s.t, relay.Killed(), "%s: the relay ended otherwise:\n%s", point, relay.Log())
	results.count(s.t.Name(), "died at "+point)
}
