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

// layoutVersion is the version of the stored layout that this package writes.
// It reads every older one.
const layoutVersion = 1

// layoutID is the _id of the document in <log>_meta that holds the version.
const layoutID = "layout"

// checkLayout refuses a log that a newer version laid out. A log without a
// version is one that a foreign producer made, and is read as the first.
func (s *Store) checkLayout(ctx context.Context) error {
	s.mu.Lock()
	checked := s.checked
	s.mu.Unlock()
	if checked {
		return nil
	}
	version, err := s.storedLayout(ctx)
	if err != nil {
		return err
	}
	if version > layoutVersion {
		return fmt.Errorf("%w: the log %s has version %d, this one knows %d", core.ErrNewerLayout, s.log.Name(), version, layoutVersion)
	}
	s.mu.Lock()
	s.checked = true
	s.mu.Unlock()
	return nil
}

// storedLayout is the version that stands in the meta document, 0 if none does.
func (s *Store) storedLayout(ctx context.Context) (int, error) {
	var meta struct {
		Version int `bson:"version"`
	}
	err := s.meta.FindOne(withoutSession(ctx), bson.D{{Key: "_id", Value: layoutID}}).Decode(&meta)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, fmt.Errorf("reading the layout's version: %w", err)
	}
	return meta.Version, nil
}

// writeLayout notes the version. It never lowers one.
func (s *Store) writeLayout(ctx context.Context) error {
	_, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: layoutID}},
		bson.D{{Key: "$max", Value: bson.D{{Key: "version", Value: layoutVersion}}}}, options.UpdateOne().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("writing the layout's version: %w", err)
	}
	return nil
}
