package main

import (
	"cmp"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// newest reads the collection backwards, which needs no index.
func (s *mongoStore) newest(ctx context.Context, n int) ([]core.Event, error) {
	names := s.options.Fields
	eventType, aggregate := cmp.Or(names.Type, "event_type"), cmp.Or(names.Aggregate, "aggregate")
	tenant, version := cmp.Or(names.Tenant, "tenant"), cmp.Or(names.Version, "version")
	log := s.client.Database(s.options.Database).Collection(s.options.Collection)
	cursor, err := log.Find(ctx, bson.D{}, options.Find().SetLimit(int64(n)).
		SetSort(bson.D{{Key: "$natural", Value: -1}}).
		SetProjection(bson.D{{Key: eventType, Value: 1}, {Key: aggregate, Value: 1}, {Key: tenant, Value: 1}, {Key: version, Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("reading the newest events: %w", err)
	}
	var documents []bson.Raw
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, fmt.Errorf("reading the newest events: %w", err)
	}
	events := make([]core.Event, len(documents))
	for i, document := range documents {
		for name, field := range map[string]*string{eventType: &events[i].Type, aggregate: &events[i].Aggregate, tenant: &events[i].Tenant} {
			*field, _ = document.Lookup(name).StringValueOK()
		}
		whole, _ := document.Lookup(version).AsInt64OK()
		events[i].Version = int(whole)
	}
	return events, nil
}
