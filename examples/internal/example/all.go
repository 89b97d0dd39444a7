package example

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// All reads every document of a collection, in the order in which they lie.
func All[T any](ctx context.Context, coll *mongo.Collection) ([]T, error) {
	cursor, err := coll.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", coll.Name(), err)
	}
	var docs []T
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("reading %s: %w", coll.Name(), err)
	}
	return docs, nil
}
