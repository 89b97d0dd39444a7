package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
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
	for _, coll := range s.collections() {
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

// collections are all that the store keeps something in.
func (s *Store) collections() []*mongo.Collection {
	return []*mongo.Collection{s.log, s.cursors, s.jobs, s.keys, s.meta, s.acts}
}

// exists returns core.ErrNoOutbox where none of the store's collections exists,
// so that an operator who named another database is told, and creates nothing in
// it. A user who may not list collections is not told.
func (s *Store) exists(ctx context.Context) error {
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	if found {
		return nil
	}
	wanted := bson.A{}
	for _, coll := range s.collections() {
		wanted = append(wanted, coll.Name())
	}
	names, err := s.db.ListCollectionNames(withoutSession(ctx), bson.D{{Key: "name", Value: op("$in", wanted)}},
		options.ListCollections().SetAuthorizedCollections(true))
	switch {
	case hasCode(err, codeUnauthorized):
		return nil
	case err != nil:
		return fmt.Errorf("looking for the outbox: %w", err)
	case len(names) == 0:
		return fmt.Errorf("%w: database %q has no collection %s nor any that belongs to it: "+
			"see whether the connection string and the collection's name are right, and run `outbox indexes` for a new outbox",
			core.ErrNoOutbox, s.db.Name(), s.log.Name())
	}
	s.mu.Lock()
	s.found = true
	s.mu.Unlock()
	return nil
}
