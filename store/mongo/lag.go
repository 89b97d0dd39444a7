package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// lagBound is how many events Lag counts.
const lagBound = 100_000

// Lag counts the events that were written after the cursor's position, up to
// 100,000. It goes by the time of the insert, or OccurredAt where there is no
// seq: an event of a transaction that was open long may be missed for a while.
// A cursor that doesn't exist is behind by the whole log.
func (s *Store) Lag(ctx context.Context, name string) (core.Lag, error) {
	poll, err := s.polls(ctx)
	if err != nil {
		return core.Lag{}, err
	}
	var doc cursorDoc
	raw, err := s.cursors.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
	case err != nil:
		return core.Lag{}, fmt.Errorf("reading cursor %q: %w", name, err)
	default:
		if doc, err = s.decodeCursor(raw); err != nil {
			return core.Lag{}, err
		}
	}
	seq := s.cfg.Fields.Seq
	filter := bson.D{}
	if from := lagFrom(doc, poll); !from.IsZero() {
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: seq, Value: op("$gt", from)}},
			bson.D{{Key: seq, Value: nil}, {Key: s.cfg.Fields.OccurredAt, Value: op("$gt", foreignFrom(doc, from))}},
		}})
	}
	if poll || (doc.Scan != nil && doc.Scan.First && !doc.Scan.Published) {
		filter = append(bson.D{{Key: s.cfg.Fields.PublishedAt, Value: nil}}, filter...)
	}
	found, err := s.log.Aggregate(ctx, bson.A{
		op("$match", filter),
		op("$limit", lagBound),
		op("$group", bson.D{
			{Key: "_id", Value: nil},
			{Key: "events", Value: op("$sum", int64(1))},
			{Key: "oldest", Value: op("$min", writtenAt(s.cfg.Fields))},
			{Key: "now", Value: op("$first", "$$NOW")},
		}),
	})
	if err != nil {
		return core.Lag{}, fmt.Errorf("counting what cursor %q has before it: %w", name, err)
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	var counted []struct {
		Events int64     `bson:"events"`
		Oldest time.Time `bson:"oldest"`
		Now    time.Time `bson:"now"`
	}
	if err := found.All(ctx, &counted); err != nil {
		return core.Lag{}, fmt.Errorf("counting what cursor %q has before it: %w", name, err)
	}
	if len(counted) == 0 {
		return core.Lag{}, nil
	}
	lag := core.Lag{Events: counted[0].Events}
	if oldest := counted[0].Oldest; !oldest.IsZero() {
		lag.Age = max(time.Millisecond, counted[0].Now.Sub(oldest))
	}
	return lag, nil
}

// writtenAt is when a document was written, as far as it tells.
func writtenAt(f Fields) bson.D {
	timestamp := op("$eq", bson.A{op("$type", "$"+f.Seq), "timestamp"})
	date := op("$eq", bson.A{op("$type", "$"+f.OccurredAt), "date"})
	return op("$toDate", op("$cond", bson.A{
		timestamp, "$" + f.Seq, op("$cond", bson.A{date, "$" + f.OccurredAt, nil}),
	}))
}

// foreignFrom is the date after which events without a seq are still to be
// settled.
func foreignFrom(doc cursorDoc, from bson.Timestamp) bson.DateTime {
	if doc.Scan != nil {
		if date, ok := doc.Scan.OccurredAt.DateTimeOK(); ok {
			return bson.DateTime(date)
		}
		return dateOf(doc.From) - 1
	}
	return dateOf(from)
}

// lagFrom is the seq after which events are still to be settled.
func lagFrom(doc cursorDoc, poll bool) bson.Timestamp {
	switch {
	case poll:
		return doc.From
	case doc.Scan != nil && doc.Scan.Seq.IsZero():
		return doc.From
	case doc.Scan != nil:
		return doc.Scan.Seq
	}
	return doc.Position.Time
}
