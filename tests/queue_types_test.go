package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// handWrittenJob is the least document of docs/layout.md, and what else is given.
func handWrittenJob(more ...bson.E) bson.D {
	doc := bson.D{
		{Key: "seq", Value: bson.Timestamp{}},
		{Key: "sink", Value: "s"},
		{Key: "state", Value: core.JobReady},
		{Key: "rank", Value: 1},
		{Key: "event_type", Value: "by.hand"},
		{Key: "payload", Value: bson.D{{Key: "a", Value: 1}}},
	}
	doc = slices.DeleteFunc(doc, func(e bson.E) bool {
		return slices.ContainsFunc(more, func(m bson.E) bool { return m.Key == e.Key })
	})
	return append(doc, more...)
}

// TestAJobWithFieldsOfWrongTypesHoldsUpNoOther inserts a document by hand, as a
// program in another language may, beside jobs that were enqueued.
func TestAJobWithFieldsOfWrongTypesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, wrong := range []bson.E{
		{Key: "available_at", Value: "2026-01-01T00:00:00Z"},
		{Key: "available_at", Value: int64(1_735_689_600_000)},
		{Key: "attempts", Value: "0"},
		{Key: "attempts", Value: bson.A{}},
		{Key: "available_at", Value: bson.Timestamp{T: 1}}, // after all dates
		{Key: "available_at", Value: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		{Key: "max_attempts", Value: "many"},
		{Key: "sink", Value: 5},
	} {
		t.Run(fmt.Sprintf("%s-%T", wrong.Key, wrong.Value), func(t *testing.T) {
			t.Parallel()
			db := servicetest.Database(t)
			s, err := mongostore.New(db, mongostore.Config{})
			require.NoError(t, err)
			require.NoError(t, s.EnsureIndexes(t.Context()))
			// A text comes before a UUID in the order of ids, in which the server updates.
			_, err = db.Collection("outbox_jobs").InsertOne(t.Context(), handWrittenJob(bson.E{Key: "_id", Value: "by-hand"}, wrong))
			require.NoError(t, err)
			const jobs = 20
			for range jobs {
				enqueue(t, s, core.Job{Sink: "s", Event: core.Event{Type: "t", Payload: []byte(`{}`)}})
			}
			runWorker(t, s, relay.Worker{Sink: "s", BatchJobs: 50}, core.SinkFunc(func(context.Context, core.Lease) error { return nil }))
			eventually(t, 30*time.Second, "the end of the jobs that were enqueued", func() bool {
				n, err := db.Collection("outbox_jobs").CountDocuments(t.Context(), bson.D{
					{Key: "event_type", Value: "t"}, {Key: "state", Value: core.JobCompleted},
				})
				require.NoError(t, err)
				return n == jobs
			})
			_, err = s.Stats(t.Context())
			require.NoError(t, err)
		})
	}
}

// TestALeaseIsTakenBackBesideAJobWithFieldsOfWrongTypes: one such document must not
// keep the leases of all sinks.
func TestALeaseIsTakenBackBesideAJobWithFieldsOfWrongTypes(t *testing.T) {
	t.Parallel()
	for _, wrong := range []bson.E{
		{Key: "redeliveries", Value: "0"}, {Key: "redeliveries", Value: 1.5}, {Key: "cursor", Value: 5},
	} {
		t.Run(fmt.Sprintf("%s-%T", wrong.Key, wrong.Value), func(t *testing.T) {
			t.Parallel()
			db := servicetest.Database(t)
			s, err := mongostore.New(db, mongostore.Config{})
			require.NoError(t, err)
			require.NoError(t, s.EnsureIndexes(t.Context()))
			receipts := enqueue(t, s, core.Job{Sink: "s", Event: core.Event{Type: "t", Payload: []byte(`{}`)}})
			_, err = db.Collection("outbox_jobs").InsertOne(t.Context(), handWrittenJob(wrong))
			require.NoError(t, err)
			claimed, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "s", Max: 2, Lease: time.Millisecond})
			require.NoError(t, err)
			require.Len(t, claimed, 2)
			eventually(t, 30*time.Second, "the job that was enqueued to be ready again", func() bool {
				_, err := s.TakeBack(t.Context(), core.TakeBackRequest{})
				require.NoError(t, err)
				info, err := s.Job(t.Context(), receipts[0].ID)
				require.NoError(t, err)
				return info.State == core.JobReady
			})
		})
	}
}

// TestAJobWhoseAttemptsAreNoWholeNumberIsNotTriedForEver: it may be tried as often
// as max_attempts says, at most.
func TestAJobWhoseAttemptsAreNoWholeNumberIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, s.EnsureIndexes(t.Context()))
	_, err = db.Collection("outbox_jobs").InsertOne(t.Context(), handWrittenJob(
		bson.E{Key: "attempts", Value: 0.5}, bson.E{Key: "max_attempts", Value: 3}))
	require.NoError(t, err)
	var tries atomic.Int64
	runWorker(t, s, relay.Worker{Sink: "s", Backoff: relay.Backoff{Initial: time.Millisecond, Max: time.Millisecond}},
		core.SinkFunc(func(context.Context, core.Lease) error {
			tries.Add(1)
			return errors.New("not now")
		}))
	eventually(t, 30*time.Second, "the end of the job", func() bool {
		require.LessOrEqual(t, tries.Load(), int64(3))
		stats, err := s.Stats(t.Context())
		require.NoError(t, err)
		return stats.Failed == 1
	})
}

// TestTenantsThatAreNumbersKeepNoOtherTenantWaiting: no worker with a tenant rate
// takes a job whose tenant is no text, but those of the others go out.
func TestTenantsThatAreNumbersKeepNoOtherTenantWaiting(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, s.EnsureIndexes(t.Context()))
	var numbers []any
	for i := range 150 { // more than are claimed for at once
		numbers = append(numbers, handWrittenJob(bson.E{Key: "tenant", Value: 500 + i}))
	}
	_, err = db.Collection("outbox_jobs").InsertMany(t.Context(), numbers)
	require.NoError(t, err)
	tenants := []string{"", "0-zero", "100", "acme"}
	for _, tenant := range tenants {
		enqueue(t, s, core.Job{Sink: "s", Event: core.Event{Type: "t", Tenant: tenant, Payload: []byte(`{}`)}})
	}
	runWorker(t, s, relay.Worker{Sink: "s", TenantRate: 100}, core.SinkFunc(func(context.Context, core.Lease) error { return nil }))
	eventually(t, 30*time.Second, "the jobs of all tenants with a name", func() bool {
		n, err := db.Collection("outbox_jobs").CountDocuments(t.Context(), bson.D{
			{Key: "event_type", Value: "t"}, {Key: "state", Value: core.JobCompleted},
		})
		require.NoError(t, err)
		return n == int64(len(tenants))
	})
}

// runWorker runs a worker until the test ends.
func runWorker(t *testing.T, s *mongostore.Store, w relay.Worker, sink core.Sink) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Log: s, Queue: s, Sinks: map[string]core.Sink{w.Sink: sink}, Workers: []relay.Worker{w}, Drain: time.Second,
	})
	require.NoError(t, err)
	ended, stop := background(t, func(ctx context.Context) { _ = r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		<-ended
	})
}
