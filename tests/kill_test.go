package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	{"mongo.scan-to-stream", 1}, // the scan is read, the stream not yet open; a new cursor's only, so it comes first
	{"kafka.sent", 5},           // the request is on its way, no acknowledgement
	{"relay.delivered", 5},      // acknowledged, position not saved
	{"relay.saving", 5},         // about to save the position
	{"mongo.takeover", 1},       // the fence is raised, nothing read
	{"mongo.cleaner", 1},        // the cleaner is at work
}

// TestARelayThatDiesAtANamedPlaceLosesNothing lets relays die at each crash
// point, again and again, while an order service commits.
func TestARelayThatDiesAtANamedPlaceLosesNothing(t *testing.T) {
	t.Parallel()
	times := scale(1, 10)
	s := newStage(t, servers{}, mongostore.Config{})
	s.config.Lease = shortLease
	s.config.Store = []string{"margin: 5s"} // so that the cleaner has something to do
	s.config.Relay = []string{"retention: 1s", "clean_interval: 200ms"}
	w := s.workload(300, 100)
	require.NoError(t, w.Run(t.Context())) // a backlog for the scan
	w.Transactions, w.PerSecond, w.Workers = 1<<30, 200, 4
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop

	for _, point := range crashPoints {
		for n := range times {
			relay := s.start(fmt.Sprintf("OUTBOX_CRASH=%s:%d", point.name, 1+n%point.atMost))
			select {
			case <-relay.Done():
			case <-time.After(30 * time.Second):
				require.Fail(t, "crash point was not reached", "%s\n%s", point.name, relay.Log())
			}
			require.True(t, relay.Killed(), "%s: the relay ended otherwise:\n%s", point.name, relay.Log())
		}
		results.add(t.Name(), point.name, fmt.Sprintf("died %d times", times))
	}
	stop()
	<-committing
	s.follow()
	s.finish(s.start())
	s.check("", mostRepeats)
}
