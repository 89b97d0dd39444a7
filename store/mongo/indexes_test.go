package mongo

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestEnsureIndexesMayBeRepeated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		if err := s.EnsureIndexes(t.Context()); err != nil {
			t.Fatal(err)
		}
		poll, err := s.polls(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		missing, err := s.missingIndexes(t.Context(), poll)
		if err != nil || len(missing) > 0 {
			t.Errorf("missing after EnsureIndexes: %v, %v", missing, err)
		}
	})
}

func TestTheFirstAppendFindsItsCollection(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Collection: "events", SerializeKeys: true})
	err := s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, order("first")) })
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnIndexUnderAnotherNameServesAsWell(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	keys := bson.D{{Key: "seq", Value: 1}, {Key: "occurred_at", Value: int64(1)}, {Key: "_id", Value: int32(1)}}
	if _, err := db.Collection("outbox").Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	newStore(t, db, Config{})
}

func TestAnIndexInTheWayIsToldWithTheCure(t *testing.T) {
	t.Parallel()
	scan := bson.D{{Key: "seq", Value: 1}, {Key: "occurred_at", Value: 1}, {Key: "_id", Value: 1}}
	for name, index := range map[string]mongo.IndexModel{
		"outbox_scan": {Keys: bson.D{{Key: "other", Value: 1}}, Options: options.Index().SetName("outbox_scan")},
		"theirs":      {Keys: scan, Options: options.Index().SetName("theirs").SetSparse(true)},
	} {
		db := servicetest.Database(t)
		if _, err := db.Collection("outbox").Indexes().CreateOne(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		s, err := New(db, Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.EnsureIndexes(t.Context())
		if err == nil {
			continue // this server takes both
		}
		command := `db.getCollection("outbox").dropIndex("` + name + `")`
		if !strings.Contains(err.Error(), command) || !strings.Contains(err.Error(), "outbox_scan") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with the command %s", err, command)
		}
		// The command cures it.
		if err := s.log.Indexes().DropOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureIndexes(t.Context()); err != nil {
			t.Errorf("after %s: %v", command, err)
		}
	}
}

func TestACollectionThatLosesEventsIsRefused(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	if err := db.CreateCollection(t.Context(), "outbox", options.CreateCollection().SetCapped(true).SetSizeInBytes(4096)); err != nil {
		t.Fatal(err)
	}
	s, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err == nil || !strings.Contains(err.Error(), "capped") {
		t.Errorf("got %v, want the capped collection refused", err)
	}
}

// The cleaner and the cursors must not scan the collection.
func TestWhatTheCleanerLooksUpIsIndexed(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, tc := range []struct {
		coll   *mongo.Collection
		filter bson.D
	}{
		{s.log, bson.D{{Key: "seq", Value: op("$lt", bson.Timestamp{T: 1})}}},
		{s.log, bson.D{{Key: "seq", Value: nil}, {Key: "occurred_at", Value: op("$lt", bson.DateTime(0))}}},
		{s.jobs, bson.D{{Key: "cursor", Value: "kafka"}, {Key: "position.time", Value: op("$gte", bson.Timestamp{T: 1})}}},
		{s.jobs, bson.D{{Key: "cursor", Value: "kafka"}}},
		{s.jobs, bson.D{{Key: "reference", Value: op("$exists", true)}}},
	} {
		raw, err := s.db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: bson.D{
			{Key: "find", Value: tc.coll.Name()}, {Key: "filter", Value: tc.filter},
		}}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		plan := raw.Lookup("queryPlanner", "winningPlan").String()
		if strings.Contains(plan, "COLLSCAN") || !strings.Contains(plan, "IXSCAN") {
			t.Errorf("%s %v scans the collection: %s", tc.coll.Name(), tc.filter, plan)
		}
	}
}
