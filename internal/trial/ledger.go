package trial

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// Committed is one event that a committed transaction appended.
type Committed struct {
	ID      string `bson:"_id"`
	Key     string `bson:"key"`
	Version int64  `bson:"version"`
}

// Ledger reads what was committed. Call it when the workload has ended.
func Ledger(ctx context.Context, db *mongo.Database) ([]Committed, error) {
	cursor, err := ledger(db).Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	var entries []Committed
	if err := cursor.All(ctx, &entries); err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	return entries, nil
}

// CommittedSoFar counts the ledger's entries; cheap, and not exact after a
// crash of the database.
func CommittedSoFar(ctx context.Context, db *mongo.Database) (int64, error) {
	n, err := ledger(db).EstimatedDocumentCount(ctx)
	if err != nil {
		return 0, fmt.Errorf("counting the ledger: %w", err)
	}
	return n, nil
}

func ledger(db *mongo.Database) *mongo.Collection {
	return db.Collection(ledgerName, options.Collection().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
}
