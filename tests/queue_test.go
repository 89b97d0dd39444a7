package tests

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// enqueue commits jobs and returns their receipts.
func enqueue(t *testing.T, s *mongostore.Store, jobs ...core.Job) (receipts []core.Receipt) {
	t.Helper()
	require.NoError(t, s.InTransaction(t.Context(), func(ctx context.Context) (err error) {
		receipts, err = s.Enqueue(ctx, jobs...)
		return err
	}))
	return receipts
}

// TestAJobThatKillsItsProcessEndsAsCrashed: the process is started again each
// time, and the other jobs are delivered. They were at hand when it died, so two
// redeliveries are the least: from then on a job is delivered alone.
func TestAJobThatKillsItsProcessEndsAsCrashed(t *testing.T) {
	t.Parallel()
	c := newCast(t, "")
	c.config.Worker, c.config.JobLease, c.config.BatchJobs = true, time.Second, 10
	c.config.MaxRedeliveries = scale(2, core.DefaultMaxRedeliveries)
	c.mood("killer", "killed")
	job := func(key string) core.Job {
		return core.Job{Sink: "s", Event: core.Event{ID: key, AggregateID: key, Type: "t", Payload: []byte(`{}`)}}
	}
	jobs := []core.Job{job("killer")}
	for i := range 6 {
		jobs = append(jobs, job(fmt.Sprint("healthy-", i)))
	}
	receipts := enqueue(t, c.store, jobs...)
	deaths := 0
	supervised, end := background(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			relay := c.start()
			select {
			case <-relay.Done():
				deaths++
			case <-ctx.Done():
				relay.Kill()
			}
		}
	})
	for _, r := range receipts {
		eventually(t, 2*time.Minute, "the end of all jobs", func() bool {
			info, err := c.store.Job(t.Context(), r.ID)
			require.NoError(t, err)
			return info.State.Final()
		})
	}
	end()
	<-supervised
	for i, r := range receipts {
		info, err := c.store.Job(t.Context(), r.ID)
		require.NoError(t, err)
		if i > 0 {
			require.Equal(t, core.JobCompleted, info.State, "%+v", info)
			continue
		}
		require.Equal(t, core.JobFailed, info.State, "%+v", info)
		require.Equal(t, core.CodeCrashed, info.Failure.Code)
		require.Equal(t, c.config.MaxRedeliveries, info.Redeliveries)
	}
	require.Equal(t, c.config.MaxRedeliveries+1, deaths)
}

// TestAClaimExaminesLittleAmongManyCompletedJobs looks at what the server reads
// for a claim where nearly all jobs have ended.
func TestAClaimExaminesLittleAmongManyCompletedJobs(t *testing.T) {
	t.Parallel()
	completed := scale(50_000, 1_000_000)
	var mu sync.Mutex
	var sent []bson.Raw
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		switch e.CommandName {
		case "find", "findAndModify", "update":
			sent = append(sent, append(bson.Raw(nil), e.Command...))
		}
	}}
	db := servicetest.Database(t, options.Client().SetMonitor(monitor))
	s, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, s.EnsureIndexes(t.Context()))
	job := func(n int) core.Job {
		j := core.Job{Sink: "s", Event: core.Event{Type: "t", Payload: []byte(`{}`)}}
		if n%2 == 0 {
			j.Tenant = "tenant"
		}
		return j
	}
	fillCompleted(t, s, db.Collection("outbox_jobs"), completed, job)
	var fresh []core.Job
	for n := range 400 {
		fresh = append(fresh, job(n))
	}
	enqueue(t, s, fresh...)

	for _, req := range []core.ClaimRequest{
		{Max: 1}, {Max: 50}, {Max: 50, Tenants: []string{"tenant"}}, {Max: 50, Tenants: []string{""}}, {Max: 50, FromRank: 1}, {Max: 20, Spread: 20},
	} {
		req.Sink = "s"
		mu.Lock()
		sent = nil
		mu.Unlock()
		claimed, err := s.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, claimed, req.Max)
		mu.Lock()
		commands := sent
		mu.Unlock()
		require.NotEmpty(t, commands)
		most := int64(0)
		for _, command := range commands {
			keys := examined(t, db, command)
			if _, err := command.LookupErr("updates"); err == nil {
				// By _id: the server counts a key for each, and another where it has
				// to look for the next one.
				require.LessOrEqual(t, keys, int64(2*req.Max), "the write of %+v", req)
				continue
			}
			most = max(most, keys)
		}
		require.LessOrEqual(t, most, int64(req.Max+req.Spread+10), "%+v", req)
		results.add(t.Name(), fmt.Sprintf("completed=%d max=%d tenants=%d from=%d spread=%d", completed, req.Max, len(req.Tenants), req.FromRank, req.Spread),
			fmt.Sprintf("keys=%d", most))
	}
}

// fillCompleted makes many copies of a job that was completed.
func fillCompleted(t *testing.T, s *mongostore.Store, jobs *mongo.Collection, n int, job func(int) core.Job) {
	t.Helper()
	enqueue(t, s, job(0), job(1))
	claimed, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "s", Max: 2})
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	_, err = s.Settle(t.Context(), []core.Settlement{{Job: claimed[0], Kind: core.Complete}, {Job: claimed[1], Kind: core.Complete}})
	require.NoError(t, err)
	found, err := jobs.Find(t.Context(), bson.D{{Key: "state", Value: core.JobCompleted}})
	require.NoError(t, err)
	var models []bson.D
	require.NoError(t, found.All(t.Context(), &models))
	require.Len(t, models, 2)
	fast := jobs.Database().Client().Database(jobs.Database().Name()).Collection(jobs.Name())
	const batch = 10_000
	for from := 0; from < n; from += batch {
		docs := make([]any, min(batch, n-from))
		for i := range docs {
			doc := append(bson.D(nil), models[i%2]...)
			for f := range doc {
				if doc[f].Key == "_id" {
					doc[f].Value = fmt.Sprintf("copy-%d", from+i)
				}
			}
			docs[i] = doc
		}
		_, err := fast.InsertMany(t.Context(), docs, options.InsertMany().SetOrdered(false))
		require.NoError(t, err)
	}
}

// examined is how many index keys the server reads for a command.
func examined(t *testing.T, db *mongo.Database, command bson.Raw) int64 {
	t.Helper()
	var plain bson.D
	for _, name := range []string{
		"find", "findAndModify", "update", "filter", "query", "sort", "limit", "projection", "hint", "updates", "new",
	} {
		if v, err := command.LookupErr(name); err == nil {
			plain = append(plain, bson.E{Key: name, Value: v})
		}
	}
	explain := bson.D{{Key: "explain", Value: plain}, {Key: "verbosity", Value: "executionStats"}}
	var answer struct {
		Stats struct {
			Keys int64 `bson:"totalKeysExamined"`
		} `bson:"executionStats"`
	}
	require.NoError(t, db.RunCommand(t.Context(), explain).Decode(&answer))
	return answer.Stats.Keys
}
