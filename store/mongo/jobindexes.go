package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

var (
	// readyIndex answers claims of any tenant.
	readyIndex = bson.D{{Key: "sink", Value: 1}, {Key: "rank", Value: 1}, {Key: "available_at", Value: 1}, {Key: "seq", Value: 1}}
	// tenantIndex answers claims by tenant. The state in front lets the server
	// list tenants and count jobs without reading documents.
	tenantIndex = bson.D{
		{Key: "state", Value: 1},
		{Key: "sink", Value: 1},
		{Key: "tenant", Value: 1},
		{Key: "rank", Value: 1},
		{Key: "available_at", Value: 1},
		{Key: "seq", Value: 1},
	}
)

// openIndex answers which jobs of a cursor are open. A claim or a settlement that
// leaves a job open doesn't move it in there.
var openIndex = bson.D{{Key: "cursor", Value: 1}, {Key: "open", Value: 1}, {Key: "position.time", Value: 1}}

// jobIndexes are partial by state: a job is in those of its state alone. Each
// one costs every claim and settlement something, also where it doesn't hold
// the job.
func (s *Store) jobIndexes() []wantedIndex {
	in := func(state core.JobState) bson.D { return bson.D{{Key: "state", Value: state}} }
	claimable := append(in(core.JobReady), bson.E{Key: "rank", Value: op("$gte", 0)})
	expire := int32(0)
	return []wantedIndex{
		{coll: s.jobs, name: "outbox_ready", keys: readyIndex, partial: claimable, why: "jobs are claimed by it"},
		{coll: s.jobs, name: "outbox_tenant", keys: tenantIndex, partial: claimable, why: "jobs are claimed and counted by tenant by it"},
		{
			coll: s.jobs, name: "outbox_lease", keys: bson.D{{Key: "lease_until", Value: 1}}, partial: in(core.JobActive),
			why: "leases that ran out are found by it",
		},
		{
			coll: s.jobs, name: "outbox_completed", keys: bson.D{{Key: "expire_at", Value: 1}}, partial: in(core.JobCompleted),
			expire: &expire, why: "completed jobs are removed by it",
		},
		{
			coll: s.jobs, name: "outbox_open", keys: openIndex, partial: bson.D{{Key: "open", Value: true}},
			why: "a holder finds the jobs of its cursor that are still to be delivered by it",
		},
		{
			coll: s.jobs, name: "outbox_failed",
			keys:    bson.D{{Key: "state", Value: 1}, {Key: "finished_at", Value: 1}, {Key: "expire_at", Value: 1}},
			partial: bson.D{{Key: "state", Value: op("$in", bson.A{core.JobFailed, core.JobUnknown})}},
			why:     "jobs that failed, or whose outcome is unknown, are listed and removed by it",
		},
	}
}

// retentionID is the _id of the document in <log>_meta that holds for how long
// jobs were kept when EnsureIndexes ran last.
const retentionID = "retention"

type storedRetention struct {
	Completed int64 `bson:"completed_ms"`
	Failed    int64 `bson:"failed_ms"`
}

// adaptRetention lets jobs that ended while the retention was shorter stay as
// long as those that end now. One that was lowered takes nothing back.
func (s *Store) adaptRetention(ctx context.Context) error {
	id := bson.D{{Key: "_id", Value: retentionID}}
	var last storedRetention
	err := s.meta.FindOne(ctx, id).Decode(&last)
	isNew := errors.Is(err, mongo.ErrNoDocuments)
	if err != nil && !isNew {
		return fmt.Errorf("reading the retention of jobs: %w", err)
	}
	now := storedRetention{Completed: s.cfg.CompletedRetention.Milliseconds(), Failed: s.cfg.FailedRetention.Milliseconds()}
	if now == last {
		return nil
	}
	if !isNew && now.Completed > last.Completed {
		if err := s.keepLonger(ctx, core.JobCompleted, now.Completed); err != nil {
			return err
		}
	}
	if !isNew && now.Failed > last.Failed {
		if err := s.keepLonger(ctx, core.JobFailed, now.Failed); err != nil {
			return err
		}
	}
	if _, err := s.meta.UpdateOne(ctx, id, bson.D{{Key: "$set", Value: now}}, options.UpdateOne().SetUpsert(true)); err != nil {
		return fmt.Errorf("noting the retention of jobs: %w", err)
	}
	return nil
}

func (s *Store) keepLonger(ctx context.Context, state core.JobState, ms int64) error {
	_, err := s.jobs.UpdateMany(ctx,
		bson.D{{Key: "state", Value: state}, {Key: "expire_at", Value: op("$gt", bson.DateTime(0))}},
		bson.A{op("$set", bson.D{{Key: "expire_at", Value: op("$max", bson.A{
			"$expire_at", op("$add", bson.A{dateIn("finished_at", "$$NOW"), ms}),
		})}})})
	if err != nil {
		return fmt.Errorf("raising the retention of %s jobs: %w", state, err)
	}
	return nil
}
