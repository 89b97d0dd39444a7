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

// slack is what starting a term costs beside waiting for the lease, on a busy
// machine.
const slack = 500 * time.Millisecond

// TestAStandbyTakesOver runs two relays on one cursor: only one delivers. When
// it is killed the other goes on within one and a half leases, and when it is
// stopped within a third of one.
func TestAStandbyTakesOver(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	s := newStage(t, servers{}, mongostore.Config{})
	s.config.Lease = lease
	w := s.workload(1<<30, 50)
	w.PerSecond, w.Workers = 100, 4
	background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until the test ends
	s.follow()

	fence := ""
	for _, end := range []struct {
		name   string
		end    func(*trial.Relay)
		within time.Duration
	}{
		{"SIGKILL", (*trial.Relay).Kill, lease*3/2 + slack},
		{"SIGTERM", s.stop, lease/3 + slack},
	} {
		first := s.start()
		eventually(t, 20*time.Second, "the first delivery", s.newFence(fence))
		fence = s.lastFence()
		second := s.start()
		require.NoError(t, second.Await(t.Context(), "relay started"))
		before := len(s.collector.Records())
		eventually(t, 10*time.Second, "the holder's next delivery", func() bool { return len(s.collector.Records()) > before+50 })
		require.Equal(t, fence, s.lastFence(), "the standby delivered")

		began := time.Now()
		end.end(first)
		eventually(t, 20*time.Second, "the take-over", s.newFence(fence))
		took := s.lastFenceBegan().Sub(began)
		results.add(t.Name(), end.name, fmt.Sprintf("took over after %.2f leases", took.Seconds()/lease.Seconds()))
		require.LessOrEqual(t, took, end.within, "take-over after %s", end.name)
		fence = s.lastFence()
		s.stop(second)
	}
	s.requireRisingFences()
}

// newFence tells whether a record of a term other than the given one arrived.
func (s *stage) newFence(fence string) func() bool {
	return func() bool { last := s.lastFence(); return last != "" && last != fence }
}

// lastFence is the highest fence that arrived.
func (s *stage) lastFence() string {
	last := ""
	for _, r := range s.collector.Records() {
		last = max(last, r.Fence)
	}
	return last
}

// lastFenceBegan is when the first record of the newest term arrived.
func (s *stage) lastFenceBegan() time.Time {
	last := s.lastFence()
	for _, r := range s.collector.Records() {
		if r.Fence == last {
			return r.At
		}
	}
	return time.Time{}
}

// requireRisingFences requires that in no partition a record of an older term
// follows one of a newer.
func (s *stage) requireRisingFences() {
	s.t.Helper()
	highest := map[int]string{}
	for _, r := range s.collector.Records() {
		require.GreaterOrEqual(s.t, r.Fence, highest[r.Partition], "two holders delivered at once")
		highest[r.Partition] = r.Fence
	}
}
