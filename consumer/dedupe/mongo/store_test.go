package mongo_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/dedupetest"
	mongodedupe "github.com/gooutbox/outbox/consumer/dedupe/mongo"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func newStore(t testing.TB, db *mongo.Database) *mongodedupe.Store {
	t.Helper()
	s, err := mongodedupe.New(db, mongodedupe.Config{Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(t *testing.T) dedupe.Store { return newStore(t, servicetest.Database(t)) })
}
