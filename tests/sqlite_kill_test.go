package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/trial"
)

// TestASQLiteRelayKilledAtAnyMomentLosesNothing kills relays by SIGKILL at random
// moments while a program commits to the same file.
func TestASQLiteRelayKilledAtAnyMomentLosesNothing(t *testing.T) {
	for round := range scale(2, 20) {
		t.Run(fmt.Sprintf("round-%02d", round+1), func(t *testing.T) {
			s := newSQLiteStage(t)
			background(t, s.collector.Follow)
			killing, done := context.WithCancel(t.Context())
			defer done()
			failed := make(chan error, 1)
			go func() {
				failed <- s.commit(t.Context(), scale(1500, 20_000), 10*time.Millisecond)
				done()
			}()
			relay, kills, err := trial.Killing{
				Start:     func() (*trial.Relay, error) { return s.tryStart() },
				Collector: s.collector,
				Events:    50,
			}.Run(killing)
			require.NoError(t, err)
			require.NoError(t, <-failed, "transactions failed although nothing of the program was killed")
			require.Positive(t, kills, "the relay was never killed")
			s.finish(relay, fmt.Sprintf("kills=%d", kills), mostRepeats)
		})
	}
}

// sqliteCrashPoints are the places at which a process that dies leaves a state of
// its own kind behind, see crashPoints.
var sqliteCrashPoints = []struct {
	name   string
	atMost int
}{
	{"kafka.sent", 5},
	{"relay.delivered", 5},
	{"relay.saving", 5},
	{"sqlite.takeover", 1}, // the fence is raised, nothing read
	{"sqlite.cleaner", 1},  // events are removed, the transaction is open
}

// TestASQLiteRelayThatDiesAtANamedPlaceLosesNothing lets relays die at each crash
// point while a program commits to the same file.
func TestASQLiteRelayThatDiesAtANamedPlaceLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSQLiteStage(t, "retention: 1s", "clean_interval: 200ms")
	background(t, s.collector.Follow)
	var failed error
	committing, stop := background(t, func(ctx context.Context) { failed = s.commit(ctx, 1<<30, 20*time.Millisecond) })
	for _, point := range sqliteCrashPoints {
		for n := range scale(1, 10) {
			relay := s.start(fmt.Sprintf("OUTBOX_CRASH=%s:%d", point.name, 1+n%point.atMost))
			select {
			case <-relay.Done():
			case <-time.After(time.Minute):
				require.Fail(t, "crash point was not reached", "%s\n%s", point.name, relay.Log())
			}
			require.True(t, relay.Killed(), "%s: the relay ended otherwise:\n%s", point.name, relay.Log())
			results.count(t.Name(), "died at "+point.name)
		}
	}
	stop()
	<-committing
	require.NoError(t, failed)
	s.finish(s.start(), "", mostRepeats)
}
