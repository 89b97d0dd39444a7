package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/trial"
)

// operator is who acts in these tests.
var operator = core.Act{By: "test", Reason: "to see what happens"}

// append commits one event of a key after the other, with rising versions.
func (c *cast) append(key string, from, to int64) {
	c.t.Helper()
	for version := from; version <= to; version++ {
		err := c.store.InTransaction(c.t.Context(), func(ctx context.Context) error {
			return c.store.Append(ctx, core.Event{
				ID: fmt.Sprintf("%s-%d", key, version), Aggregate: "account", AggregateID: key, Type: "account.changed",
				AggregateVersion: version, Payload: []byte(`{}`), OccurredAt: time.Now(),
			})
		})
		require.NoError(c.t, err)
	}
}

// versions are those of a key that have arrived, without repeats.
func (c *cast) versions(key string) []int64 {
	c.t.Helper()
	var all []int64
	for _, n := range c.notes() {
		if n.Key == key && n.Arrived && !slices.Contains(all, n.Version) {
			all = append(all, n.Version)
		}
	}
	return all
}

func (c *cast) awaitVersions(what, key string, want ...int64) {
	c.t.Helper()
	eventually(c.t, time.Minute, what, func() bool { return len(c.versions(key)) >= len(want) })
	require.Equal(c.t, want, c.versions(key), what)
}

func (c *cast) awaitParked(state core.JobState, n int) []core.JobInfo {
	c.t.Helper()
	eventually(c.t, time.Minute, fmt.Sprintf("the parking of %d as %s", n, state), func() bool {
		return len(c.parkedJobs(core.JobFilter{State: state})) >= n
	})
	jobs := c.parkedJobs(core.JobFilter{State: state})
	require.Len(c.t, jobs, n)
	return jobs
}

// TestAKeyGoesOnPastAFailedEvent is onFailure: skip.
func TestAKeyGoesOnPastAFailedEvent(t *testing.T) {
	t.Parallel()
	c := newParking(t, false, 0)
	relay := c.start()
	c.mood("a", "rejected")
	c.append("a", 1, 3)
	failed := c.awaitParked(core.JobFailed, 3)
	for _, job := range failed {
		require.Equal(t, core.CodeRejected, job.Failure.Code)
		require.NotEmpty(t, job.Failure.Reason)
		require.False(t, job.Holds)
	}
	c.append("b", 1, 2)
	c.awaitVersions("another key", "b", 1, 2)
	c.mood("a", "")
	c.append("a", 4, 5)
	c.awaitVersions("what came after the failed events", "a", 4, 5)

	n, err := c.store.Discard(t.Context(), core.JobFilter{IDs: []string{jobOf(failed, "a-2")}}, operator)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	n, err = c.store.Retry(t.Context(), core.JobFilter{Key: "a", State: core.JobFailed}, operator)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	c.awaitVersions("what was retried, in its order, without what was discarded", "a", 4, 5, 1, 3)
	for _, note := range c.notes() {
		if !note.End {
			continue
		}
		require.Equal(t, note.Key == "a" && note.Version < 4 && note.Arrived, note.Redriven, "%+v", note)
	}
	c.append("a", 6, 6)
	c.awaitVersions("what came after the retried events", "a", 4, 5, 1, 3, 6)
	c.stop(relay)
	require.Equal(t, []int64{4, 5, 1, 3, 6}, c.versions("a"))
}

func jobOf(jobs []core.JobInfo, event string) string {
	i := slices.IndexFunc(jobs, func(j core.JobInfo) bool { return j.EventID == event })
	return jobs[i].ID
}

// TestAFailedEventHoldsItsKeyUntilAnOperatorActs is onFailure: hold. A relay that
// takes over, or that runs when the operator acts, keeps to it.
func TestAFailedEventHoldsItsKeyUntilAnOperatorActs(t *testing.T) {
	t.Parallel()
	c := newParking(t, true, 0)
	c.config.CursorLease = parkingLease
	relay := c.start()
	c.mood("a", "rejected")
	c.append("a", 1, 3)
	head := c.awaitParked(core.JobFailed, 1)
	require.Equal(t, "a-1", head[0].EventID)
	require.True(t, head[0].Holds)
	c.awaitParked(core.JobReady, 2)
	c.mood("a", "")
	c.append("a", 4, 4)
	c.awaitParked(core.JobReady, 3)
	c.append("b", 1, 2)
	c.awaitVersions("another key", "b", 1, 2)
	relay.Kill()
	relay = c.start() // it must learn what holds the key
	c.append("b", 3, 3)
	c.awaitVersions("another key after the take-over", "b", 1, 2, 3)
	require.Empty(t, c.versions("a"), "the key went on")

	retry := func(version int64) {
		t.Helper()
		held := c.awaitParked(core.JobFailed, 1)
		require.Equal(t, fmt.Sprintf("a-%d", version), held[0].EventID)
		n, err := c.store.Retry(t.Context(), core.JobFilter{IDs: []string{held[0].ID}}, operator)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	retry(1)
	c.awaitVersions("the whole key, in its order", "a", 1, 2, 3, 4)

	c.mood("a", "rejected")
	c.append("a", 5, 7)
	held := c.awaitParked(core.JobFailed, 1)
	require.Equal(t, "a-5", held[0].EventID)
	c.awaitParked(core.JobReady, 2)
	c.mood("a", "")
	n, err := c.store.Discard(t.Context(), core.JobFilter{IDs: []string{held[0].ID}}, operator)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	c.awaitVersions("what came after the discarded event", "a", 1, 2, 3, 4, 6, 7)
	c.append("a", 8, 9)
	c.awaitVersions("what was read later", "a", 1, 2, 3, 4, 6, 7, 8, 9)
	c.stop(relay)
}

// TestEventsThatUseUpTheirAttemptsFail is the way from refused to failed.
func TestEventsThatUseUpTheirAttemptsFail(t *testing.T) {
	t.Parallel()
	c := newParking(t, false, 0)
	c.config.MaxAttempts = 3
	relay := c.start()
	c.mood("a", "refused")
	c.append("a", 1, 2)
	for _, job := range c.awaitParked(core.JobFailed, 2) {
		require.Equal(t, core.CodeExhausted, job.Failure.Code)
		require.Equal(t, 3, job.Attempts)
	}
	c.stop(relay)
	tries := map[string]int{}
	for _, n := range c.notes() {
		if n.End {
			tries[n.ID]++
			require.Equal(t, tries[n.ID], n.Attempt)
		}
	}
	require.Equal(t, map[string]int{"a-1": 3, "a-2": 3}, tries)
}

// TestParkingOutlastsKillsUnderBothPolicies kills relays at random moments while
// the sink refuses one event in fifty, so that some fail, and an operator retries
// those.
func TestParkingOutlastsKillsUnderBothPolicies(t *testing.T) {
	t.Parallel()
	for policy, hold := range policies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			for round := range scale(1, 10) {
				c := newParking(t, hold, 0.02)
				c.config.Shares["rejected"] = 0.005
				c.config.Seed, c.config.MaxAttempts, c.config.CursorLease = uint64(round), 2, parkingLease
				c.config.PrefixPerKey = round%2 == 1
				w := c.orders(1<<30, 80, scale(60.0, 150))
				w.Seed += uint64(round)
				kills := scale(4, 40)
				left := c.killAndRetry(w, kills, hold)
				c.check(fmt.Sprintf("round=%d kills=%d", round, kills), left)
			}
		})
	}
}

// killAndRetry runs the workload while actors are killed so often and an operator
// retries what failed, and then until all has arrived. left are the events that
// failed without holding their key.
func (c *cast) killAndRetry(w *trial.Workload, kills int, hold bool) (left map[string]bool) {
	t := c.t
	t.Helper()
	changes, err := trial.RecordJobs(t.Context(), c.db.Collection("outbox_jobs"))
	require.NoError(t, err)
	background(t, func(ctx context.Context) { _ = changes.Follow(ctx) })
	_, retired := background(t, func(ctx context.Context) {
		for every(ctx, 500*time.Millisecond) {
			_, _ = c.store.Retry(ctx, core.JobFilter{Cursor: parkingRoute, State: core.JobFailed}, operator)
		}
	})
	defer retired()
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	random := rand.New(rand.NewPCG(w.Seed, 3))
	for range kills {
		before := len(c.arrivals())
		relay := c.start()
		eventually(t, 2*time.Minute, "the next deliveries", func() bool { return len(c.arrivals()) > before+20 })
		every(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
		relay.Kill()
	}
	stop()
	<-committing
	c.config.CursorLease = 0 // a busy machine loses a short one
	relay := c.start()
	c.awaitArrivals(relay, nil)
	eventually(t, time.Minute, "the end of all parked jobs", func() bool { return changes.Open() == 0 })
	c.stop(relay)
	left = map[string]bool{}
	for _, change := range changes.Changes() {
		if change.Row.State == core.JobFailed && !hold {
			left[change.Row.EventID] = true
		}
	}
	return left
}
