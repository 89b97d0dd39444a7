package mongo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// Stats counts jobs by state and tells how the cursors stand, see core.Admin.
// Completed jobs are what the collection's own count leaves over: exact except
// after a crash of the server. Its cost grows with what is ready and failed, not
// with what is completed.
func (s *Store) Stats(ctx context.Context) (core.Stats, error) {
	ctx = withoutSession(ctx)
	if err := s.exists(ctx); err != nil {
		return core.Stats{}, fmt.Errorf("counting: %w", err)
	}
	var stats core.Stats
	for _, step := range []struct {
		what string
		run  func(context.Context, *core.Stats) error
	}{
		{"jobs", s.countJobs},
		{"pauses", func(ctx context.Context, stats *core.Stats) (err error) {
			stats.Pauses, err = s.Pauses(ctx)
			return err
		}},
		{"cursors", s.cursorStats},
	} {
		if err := step.run(ctx, &stats); err != nil {
			return core.Stats{}, fmt.Errorf("counting %s: %w", step.what, err)
		}
	}
	return stats, nil
}

// counted is how many jobs of a sink are in a state.
type counted struct {
	ID struct {
		Sink  bson.RawValue `bson:"sink"`
		State core.JobState `bson:"state"`
	} `bson:"_id"`
	Jobs    int64     `bson:"jobs"`
	Delayed int64     `bson:"delayed"`
	Oldest  time.Time `bson:"oldest"`
}

func (s *Store) countJobs(ctx context.Context, stats *core.Stats) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	stats.At = now
	sinks := map[string]*core.SinkStats{}
	for _, query := range []bson.D{
		{{Key: "state", Value: core.JobReady}, {Key: "rank", Value: op("$gte", 0)}},
		{{Key: "state", Value: core.JobReady}, {Key: "cursor", Value: op("$exists", true)}},
		{{Key: "state", Value: core.JobActive}, {Key: "lease_until", Value: op("$gte", bson.DateTime(0))}},
		{{Key: "state", Value: core.JobFailed}},
		{{Key: "state", Value: core.JobUnknown}},
	} {
		found, err := s.countBy(ctx, query, now)
		if err != nil {
			return err
		}
		for _, c := range found {
			name := textOrNone(c.ID.Sink)
			sink := sinks[name]
			if sink == nil {
				sink = &core.SinkStats{Sink: name}
				sinks[name] = sink
			}
			c.add(stats, sink, now)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		stats.Sinks = append(stats.Sinks, *sinks[name])
	}
	return s.countCompleted(ctx, stats)
}

// countBy counts by sink. A covered index answers for ready jobs.
func (s *Store) countBy(ctx context.Context, query bson.D, now time.Time) ([]counted, error) {
	delayed := op("$gt", bson.A{"$available_at", now})
	since := op("$max", bson.A{dateIn("available_at", nil), op("$cond", bson.A{
		op("$eq", bson.A{op("$type", "$seq"), "timestamp"}), op("$toDate", "$seq"), nil,
	})})
	cur, err := s.jobs.Aggregate(ctx, bson.A{
		op("$match", query),
		op("$group", bson.D{
			{Key: "_id", Value: bson.D{{Key: "sink", Value: "$sink"}, {Key: "state", Value: "$state"}}},
			{Key: "jobs", Value: op("$sum", int64(1))},
			{Key: "delayed", Value: op("$sum", op("$cond", bson.A{delayed, int64(1), int64(0)}))},
			{Key: "oldest", Value: op("$min", op("$cond", bson.A{delayed, nil, since}))},
		}),
	})
	if err != nil {
		return nil, err
	}
	var found []counted
	if err := cur.All(ctx, &found); err != nil {
		return nil, err
	}
	return found, nil
}

func (c counted) add(stats *core.Stats, sink *core.SinkStats, now time.Time) {
	switch c.ID.State {
	case core.JobReady:
		stats.Ready += c.Jobs - c.Delayed
		stats.Delayed += c.Delayed
		sink.Ready += c.Jobs - c.Delayed
		sink.Delayed += c.Delayed
		if !c.Oldest.IsZero() {
			sink.OldestReady = max(sink.OldestReady, now.Sub(c.Oldest))
			stats.OldestReady = max(stats.OldestReady, now.Sub(c.Oldest))
		}
	case core.JobActive:
		stats.Active += c.Jobs
		sink.Active += c.Jobs
	case core.JobFailed:
		stats.Failed += c.Jobs
		sink.Failed += c.Jobs
	case core.JobUnknown:
		stats.Unknown += c.Jobs
		sink.Unknown += c.Jobs
	case core.JobCompleted:
	}
}

func (s *Store) countCompleted(ctx context.Context, stats *core.Stats) error {
	all, err := s.jobs.EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	pauses, err := s.jobs.CountDocuments(ctx, bson.D{anyPause(), {Key: "_id.pause", Value: op("$exists", true)}}, options.Count().SetHint(byID))
	if err != nil {
		return err
	}
	stats.Completed = max(0, all-pauses-stats.Ready-stats.Delayed-stats.Active-stats.Failed-stats.Unknown)
	return nil
}
