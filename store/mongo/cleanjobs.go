package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// cleanJobsRange is how many jobs one delete covers.
const cleanJobsRange = 1000

// CleanJobs removes failed jobs whose retention ended, see core.Queue, and,
// uncounted, pauses that ended. Jobs of a cursor have no end of their retention.
// It may run in several processes at once.
func (s *Store) CleanJobs(ctx context.Context) (int64, error) {
	removed, err := s.cleanJobs(withoutSession(ctx))
	s.metrics.jobsCleaned.Add(ctx, removed, s.logAttributes())
	if err != nil {
		return removed, fmt.Errorf("cleaning jobs: %w", err)
	}
	return removed, nil
}

func (s *Store) cleanJobs(ctx context.Context) (removed int64, err error) {
	over := func(field string) bson.E {
		return bson.E{Key: "$expr", Value: op("$lte", bson.A{"$" + field, "$$NOW"})}
	}
	expired := bson.D{{Key: "state", Value: core.JobFailed}, {Key: "expire_at", Value: op("$gt", bson.DateTime(0))}, over("expire_at")}
	for {
		cur, err := s.queue.latest.Find(ctx, expired, options.Find().SetLimit(cleanJobsRange).SetBatchSize(batchSize(cleanJobsRange)).
			SetProjection(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			return removed, err
		}
		ids := bson.A{}
		for cur.Next(ctx) {
			ids = append(ids, copyOf(cur.Current.Lookup("_id")))
		}
		if err := cur.Err(); err != nil {
			return removed, err
		}
		if len(ids) == 0 {
			break
		}
		// One that was retried meanwhile stays.
		res, err := s.jobs.DeleteMany(ctx, append(bson.D{{Key: "_id", Value: op("$in", ids)}}, expired...), options.DeleteMany().SetHint(byID))
		if err != nil {
			return removed, err
		}
		removed += res.DeletedCount
		if len(ids) < cleanJobsRange {
			break
		}
	}
	_, err = s.jobs.DeleteMany(ctx, bson.D{
		anyPause(), {Key: "_id.pause", Value: op("$exists", true)}, {Key: "until", Value: op("$gt", bson.DateTime(0))}, over("until"),
	}, options.DeleteMany().SetHint(byID))
	return removed, err
}
