package tests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestTheCleanerFollowsAScanAndRemovesNothingAhead lets relays scan a log whose
// events have all passed their retention, and die, while the cleaner removes
// what lies behind the scan.
func TestTheCleanerFollowsAScanAndRemovesNothingAhead(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, servicetest.MongoURL(t))
	s := n.stage(t, mongostore.Config{})
	w := s.workload(scale(1500, 10_000), 100)
	w.PerSecond = 250 // so that the log spans many margins
	require.NoError(t, w.Run(t.Context()))
	committed, err := trial.Ledger(t.Context(), s.db)
	require.NoError(t, err)
	left := func() int {
		n, err := s.db.Collection("outbox").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		return int(n)
	}

	s.config.Lease = shortLease
	s.config.Store = []string{"margin: 1s"}
	s.config.Relay = []string{"retention: 1s", "clean_interval: 100ms"}
	s.config.RouteOptions = []string{"window: 1000", "batch: {events: 20}", "lanes: 1"}
	n.kafka.Delay(20 * time.Millisecond) // so that the scan lasts
	s.follow()
	for range scale(2, 20) {
		before := left()
		relay := s.hold()
		eventually(t, time.Minute, "a removal behind the scan", func() bool { return left() < before })
		relay.Kill()
		results.count(t.Name(), "killed in a scan while the cleaner runs")
		if events, _ := s.collector.Events(); events == len(committed) {
			break
		}
	}
	events, _ := s.collector.Events()
	require.Less(t, events, len(committed), "the scan was over before the cleaner had removed anything")
	n.restore()
	s.finish(s.start())
	s.checkAgainst(committed, "", len(committed))
}
