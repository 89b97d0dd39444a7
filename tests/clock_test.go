package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestAPrimaryWhoseClockIsAheadTakesNothingBackEarly moves the primary to a
// member whose clock is four seconds ahead while a worker holds jobs: nobody gets
// them before the lease has really ended.
func TestAPrimaryWhoseClockIsAheadTakesNothingBackEarly(t *testing.T) {
	t.Parallel()
	servicetest.NeedFaketime(t)
	const ahead, lease, jobs = 4 * time.Second, 15 * time.Second, 20
	set := servicetest.StartMongod(t, services.MongodConfig{Nodes: 3, CacheMB: 256, Clocks: map[int]time.Duration{1: ahead}})
	fast := set.Nodes()[1]
	if primary, err := set.Primary(t.Context()); err != nil || primary == fast {
		require.NoError(t, set.StepDown(t.Context()))
	}
	db := servicetest.DatabaseOf(t, servicetest.Client(t, set.URL()))
	worker, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	eventually(t, time.Minute, "the end of the election", func() bool { return worker.EnsureIndexes(t.Context()) == nil })
	others, err := mongostore.New(servicetest.Client(t, set.URL()).Database(db.Name()), mongostore.Config{})
	require.NoError(t, err)
	all := make([]core.Job, jobs)
	for i := range all {
		all[i] = core.Job{Sink: "s", Event: core.Event{ID: fmt.Sprint(i), Type: "t", Payload: []byte(`{}`)}}
	}
	enqueue(t, worker, all...)
	claimed, err := worker.Claim(t.Context(), core.ClaimRequest{Sink: "s", Max: jobs, Lease: lease})
	require.NoError(t, err)
	require.Len(t, claimed, jobs)
	ends := claimed[0].Lease.Deadline // counted from before the claim: not after the true end

	elect(t, set, fast)
	skew := time.Until(clockOf(t, fast))
	require.InDelta(t, ahead.Seconds(), skew.Seconds(), 1, "the clock of the new primary")
	rounds, settled := 0, false
	for ; time.Now().Before(ends); rounds++ {
		got, err := others.TakeBack(t.Context(), core.TakeBackRequest{})
		if err != nil {
			continue // the new primary is not ready yet
		}
		stolen, err := others.Claim(t.Context(), core.ClaimRequest{Sink: "s", Max: jobs, Lease: lease})
		if time.Now().After(ends) {
			break // it may have been in time
		}
		if !settled && time.Until(ends) < lease/3 {
			lost, err := worker.Settle(t.Context(), []core.Settlement{{Job: claimed[0], Kind: core.Complete}})
			require.NoError(t, err)
			require.Empty(t, lost, "the worker lost a job %s before the end", time.Until(ends))
			settled = true
		}
		require.Zero(t, got.Ready+got.Crashed+got.Unknown, "taken back %s before the end", time.Until(ends))
		require.Empty(t, stolen, "lent %s before the end (%v)", time.Until(ends), err)
		every(t.Context(), 20*time.Millisecond)
	}
	require.Greater(t, rounds, 10, "the election took all the time")
	require.True(t, settled, "the worker could not settle in time")
	left := jobs - 1
	eventually(t, time.Minute, "the return of the other jobs", func() bool {
		got, err := others.TakeBack(t.Context(), core.TakeBackRequest{})
		require.NoError(t, err)
		left -= got.Ready
		return left == 0
	})
	results.add(t.Name(), fmt.Sprintf("skew=%s rounds=%d", skew.Round(100*time.Millisecond), rounds),
		fmt.Sprintf("taken back %s after the end", time.Since(ends).Round(100*time.Millisecond)))
}

// elect makes a node the primary.
func elect(t *testing.T, set *services.Mongo, wanted *services.MongoNode) {
	t.Helper()
	for _, node := range set.Nodes() {
		if primary, err := set.Primary(t.Context()); node != wanted && err == nil && node != primary {
			freeze := bson.D{{Key: "replSetFreeze", Value: 30}}
			require.NoError(t, servicetest.Client(t, node.URL()).Database("admin").RunCommand(t.Context(), freeze).Err())
		}
	}
	require.NoError(t, set.StepDown(t.Context()))
	primary, err := set.AwaitPrimary(t.Context())
	require.NoError(t, err)
	require.Equal(t, wanted.Address(), primary.Address(), "another node was elected")
}

// clockOf is the wall clock of a node.
func clockOf(t *testing.T, node *services.MongoNode) time.Time {
	t.Helper()
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	db := servicetest.Client(t, node.URL()).Database("admin")
	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	return hello.LocalTime
}
