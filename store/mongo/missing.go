package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Missing names the collections and indexes that EnsureIndexes would create,
// as "outbox" and "outbox.outbox_seq". It changes nothing.
func (s *Store) Missing(ctx context.Context) ([]string, error) {
	if err := s.checkLayout(ctx); err != nil {
		return nil, fmt.Errorf("looking for collections and indexes: %w", err)
	}
	if err := s.CheckLog(ctx); errors.Is(err, ErrUnfitLog) {
		return nil, err
	}
	poll, err := s.polls(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for collections and indexes: %w", err)
	}
	names, err := s.db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("looking for collections: %w", err)
	}
	var missing []string
	for _, coll := range []*mongo.Collection{s.log, s.cursors, s.jobs, s.keys, s.meta, s.acts} {
		if !slices.Contains(names, coll.Name()) {
			missing = append(missing, coll.Name())
		}
	}
	indexes, err := s.missingIndexes(ctx, poll)
	if err != nil {
		return nil, fmt.Errorf("looking for indexes: %w", err)
	}
	return append(missing, indexes...), nil
}
