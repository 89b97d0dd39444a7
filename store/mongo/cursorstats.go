package mongo

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// cursorStats tells how the cursors stand.
func (s *Store) cursorStats(ctx context.Context, stats *core.Stats) error {
	docs, err := s.allCursors(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(docs, func(a, b cursorDoc) int { return cmp.Compare(a.Name, b.Name) })
	mean, err := s.meanEventBytes(ctx)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		info, err := s.cursorInfo(ctx, doc, stats.At)
		if err != nil {
			return err
		}
		info.LagBytes = info.Lag.Events * mean
		stats.Cursors = append(stats.Cursors, info)
	}
	if d, err := s.deployment(ctx); err != nil || !d.set {
		return err
	}
	stats.LogWindow, err = s.logWindow(ctx)
	return err
}

func (s *Store) cursorInfo(ctx context.Context, doc cursorDoc, now time.Time) (core.CursorInfo, error) {
	info := core.CursorInfo{
		Name: doc.Name, Owner: doc.Owner, Fence: numberOf(doc.Fence), Held: doc.LeaseUntil.Time().After(now),
		Scanning: doc.Scan != nil, Position: doc.Position.position(), Settled: doc.Settled,
	}
	if t, ok := tokenTime(doc.Token); ok {
		info.PlaceAge = max(0, now.Sub(timeOf(t)))
	}
	var err error
	if info.Lag, err = s.Lag(ctx, doc.Name); err != nil {
		return info, err
	}
	cur, err := s.jobs.Aggregate(ctx, bson.A{
		op("$match", bson.D{{Key: "cursor", Value: doc.Name}}),
		op("$group", bson.D{{Key: "_id", Value: "$state"}, {Key: "jobs", Value: op("$sum", int64(1))}}),
	})
	if err != nil {
		return info, err
	}
	var states []struct {
		State core.JobState `bson:"_id"`
		Jobs  int64         `bson:"jobs"`
	}
	if err := cur.All(ctx, &states); err != nil {
		return info, err
	}
	for _, one := range states {
		switch {
		case !one.State.Final():
			info.Parked += one.Jobs
		case one.State == core.JobFailed:
			info.Failed += one.Jobs
		}
	}
	return info, nil
}

// meanEventBytes is the mean size of the log's documents.
func (s *Store) meanEventBytes(ctx context.Context) (int64, error) {
	cur, err := s.log.Aggregate(ctx, bson.A{
		op("$collStats", bson.D{{Key: "storageStats", Value: bson.D{}}}),
		op("$project", bson.D{{Key: "mean", Value: "$storageStats.avgObjSize"}}),
	})
	if hasCode(err, codeNamespaceNotFound, codeUnauthorized) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var found []struct {
		Mean float64 `bson:"mean"`
	}
	if err := cur.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	return int64(found[0].Mean), nil
}

// logWindow is how far back the server's log of changes goes, or 0 where the
// user may not ask.
func (s *Store) logWindow(ctx context.Context) (time.Duration, error) {
	oplog := s.client.Database("local").Collection("oplog.rs")
	var ends [2]time.Time
	for i, order := range []int{1, -1} {
		var entry struct {
			At bson.Timestamp `bson:"ts"`
		}
		err := oplog.FindOne(ctx, bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: order}}).
			SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&entry)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments), hasCode(err, codeUnauthorized):
			return 0, nil
		case isServerError(err):
			s.warnOnce(ctx, "the server does not tell how far its log goes back", "error", err)
			return 0, nil
		case err != nil:
			return 0, err
		}
		ends[i] = timeOf(entry.At)
	}
	return max(0, ends[1].Sub(ends[0])), nil
}
