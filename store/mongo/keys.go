package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// touchKeys writes one document per key of the events, so that transactions of
// a common key conflict, the later one is run again, and they commit in the
// order of their events. It takes one round trip. The keys are sorted: two
// transactions meet at the first that they share.
func (s *Store) touchKeys(ctx context.Context, events []core.Event) error {
	keys := make([]string, len(events))
	for i := range events {
		keys[i] = events[i].AggregateID
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	models := make([]mongo.WriteModel, len(keys))
	for i, key := range keys {
		models[i] = mongo.NewUpdateOneModel().
			SetFilter(bson.D{{Key: "_id", Value: key}}).
			// The time lets old documents go, see EnsureIndexes. The number changes
			// with each write: an update that changes nothing would not conflict.
			SetUpdate(bson.D{{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}, {Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}).
			SetUpsert(true)
	}
	if _, err := s.keys.BulkWrite(ctx, models); err != nil {
		return fmt.Errorf("writing the documents of %d keys: %w", len(keys), err)
	}
	return nil
}
