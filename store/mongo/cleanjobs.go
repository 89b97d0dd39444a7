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
// uncounted, what the TTL has left of completed ones, and pauses that ended.
// Jobs of a cursor have no end of their retention. It may run in several
// processes at once.
func (s *Store) CleanJobs(ctx context.Context) (int64, error) {
	removed, err := s.cleanJobs(withoutSession(ctx))
	s.metrics.jobsCleaned.Add(ctx, removed, s.logAttributes())
	if err != nil {
		return removed, fmt.Errorf("cleaning jobs: %w", err)
	}
	return removed, nil
}

func (s *Store) cleanJobs(ctx context.Context) (int64, error) {
	removed, err := s.removeExpired(ctx, core.JobFailed)
	if err != nil {
		return removed, err
	}
	if _, err := s.removeExpired(ctx, core.JobCompleted); err != nil {
		return removed, err
	}
	_, err = s.jobs.DeleteMany(ctx, append(bson.D{anyPause(), {Key: "_id.pause", Value: op("$exists", true)}}, isOver("until")...),
		options.DeleteMany().SetHint(byID))
	return removed, err
}

// isOver matches a date that has passed by the server's clock.
func isOver(field string) bson.D {
	return bson.D{
		{Key: field, Value: op("$gt", bson.DateTime(0))}, {Key: "$expr", Value: op("$lte", bson.A{"$" + field, "$$NOW"})},
	}
}

// removeExpired removes jobs of a state whose time is over, range by range.
func (s *Store) removeExpired(ctx context.Context, state core.JobState) (removed int64, err error) {
	expired := append(bson.D{{Key: "state", Value: state}}, isOver("expire_at")...)
	for {
		ids, err := s.idsOf(ctx, expired, cleanJobsRange)
		if err != nil || len(ids) == 0 {
			return removed, err
		}
		// One that was retried meanwhile stays.
		res, err := s.jobs.DeleteMany(ctx, append(bson.D{{Key: "_id", Value: op("$in", ids)}}, expired...), options.DeleteMany().SetHint(byID))
		if err != nil {
			return removed, err
		}
		removed += res.DeletedCount
		if len(ids) < cleanJobsRange {
			return removed, nil
		}
	}
}

// idsOf are the ids of jobs that match, at most limit of them.
func (s *Store) idsOf(ctx context.Context, filter bson.D, limit int) (bson.A, error) {
	cur, err := s.queue.latest.Find(ctx, filter,
		options.Find().SetLimit(int64(limit)).SetBatchSize(batchSize(limit)).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	var ids bson.A
	for cur.Next(ctx) {
		ids = append(ids, copyOf(cur.Current.Lookup("_id")))
	}
	return ids, cur.Err()
}
