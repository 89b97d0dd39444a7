package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// append commits events, each in its own transaction.
func (s *stage) append(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		require.NoError(s.t, s.store.InTransaction(s.t.Context(), func(ctx context.Context) error {
			return s.store.Append(ctx, core.Event{ID: id, AggregateID: id, Type: "thing.happened", Payload: []byte(`{}`)})
		}))
	}
}

// awaitIDs waits until all these events have arrived.
func (s *stage) awaitIDs(ids ...string) {
	s.t.Helper()
	eventually(s.t, 30*time.Second, "the arrival of the events", func() bool {
		if s.collector.CatchUp(s.t.Context()) != nil {
			return false
		}
		for _, id := range ids {
			if !s.collector.Has(id) {
				return false
			}
		}
		return true
	})
}

// requireOnly requires that these events arrived and no others, each once.
func (s *stage) requireOnly(ids ...string) {
	s.t.Helper()
	require.NoError(s.t, s.collector.CatchUp(s.t.Context()))
	arrived := make([]string, 0, len(ids))
	for _, r := range s.collector.Records() {
		arrived = append(arrived, r.ID)
	}
	require.ElementsMatch(s.t, ids, arrived)
}

// TestARouteBeginsAtATime delivers what was committed from a moment on.
func TestARouteBeginsAtATime(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	s.append("old-1", "old-2")
	at := s.serverSecond()
	s.append("new-1", "new-2")
	s.config.RouteOptions = []string{"start: " + at.UTC().Format(time.RFC3339)}
	relay := s.hold()
	s.awaitIDs("new-1", "new-2")
	s.append("new-3")
	s.awaitIDs("new-3")
	s.stop(relay)
	s.requireOnly("new-1", "new-2", "new-3")
}

// serverSecond waits for the next second of the server's clock and returns it:
// what is written afterwards is at or after that second, what was written
// before is not.
func (s *stage) serverSecond() time.Time {
	s.t.Helper()
	clock := func() time.Time {
		var hello struct {
			LocalTime time.Time `bson:"localTime"`
		}
		require.NoError(s.t, s.db.RunCommand(s.t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
		return hello.LocalTime
	}
	next := clock().Truncate(time.Second).Add(time.Second)
	eventually(s.t, 5*time.Second, "the server's next second", func() bool { return !clock().Before(next) })
	return next
}

// TestARouteBeginsNow delivers nothing of what is there already.
func TestARouteBeginsNow(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	s.append("old-1", "old-2")
	s.config.RouteOptions = []string{"start: now"}
	first := s.hold()
	s.append("new-1")
	s.awaitIDs("new-1")
	s.stop(first)
	s.append("new-2") // while no relay runs
	second := s.hold()
	s.awaitIDs("new-2")
	s.stop(second)
	s.requireOnly("new-1", "new-2")
}

// TestPublishedEventsAreNotPublishedAgain points a new route at a collection of
// which another tool has published a part.
func TestPublishedEventsAreNotPublishedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	published := make([]any, 1000)
	for i := range published {
		published[i] = foreign(bson.D{{Key: "published_at", Value: time.Now()}})
	}
	_, err := s.db.Collection("outbox").InsertMany(t.Context(), published)
	require.NoError(t, err)
	fresh := []any{foreign(bson.D{{Key: "published_at", Value: nil}}), foreign(nil)}
	inserted, err := s.db.Collection("outbox").InsertMany(t.Context(), fresh)
	require.NoError(t, err)
	relay := s.hold()
	ids := hexIDs(inserted.InsertedIDs)
	s.awaitIDs(ids...)
	s.append("last")
	s.awaitIDs("last")
	s.stop(relay)
	s.requireOnly(append(ids, "last")...)
}

// foreign is an event as another program stores it, without seq.
func foreign(more bson.D) bson.D {
	return append(bson.D{
		{Key: "aggregate", Value: "order"},
		{Key: "aggregate_id", Value: "42"},
		{Key: "event_type", Value: "order.placed"},
		{Key: "payload", Value: bson.D{{Key: "total", Value: 99}}},
		{Key: "version", Value: 1},
		{Key: "occurred_at", Value: time.Now()},
	}, more...)
}

func hexIDs(ids []any) []string {
	hex := make([]string, len(ids))
	for i, id := range ids {
		hex[i] = id.(bson.ObjectID).Hex()
	}
	return hex
}
