package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestTheCleanerKeepsWhatACursorStillNeeds runs the cleaner of one relay while
// another route lies still and a transaction is open, then makes that route
// read the log itself.
func TestTheCleanerKeepsWhatACursorStillNeeds(t *testing.T) {
	t.Parallel()
	open := scale(2*time.Second, 50*time.Second)
	margin := scale(3*time.Second, 180*time.Second) // the long one is the default
	s := newStage(t, servers{}, mongostore.Config{})
	if !soak {
		s.config.Store = []string{"margin: " + margin.String()}
	}
	log := s.db.Collection("outbox")

	lagging := s.hold()
	passed := s.appendMany("passed", 50)
	s.awaitIDs(passed...)
	pass := func(d time.Duration) {
		began := time.Now()
		eventually(t, 2*d+time.Minute, "the end of the wait", func() bool { return time.Since(began) > d })
	}
	pass(margin + time.Second)
	s.append("recent") // takes the cursor further than the margin
	s.awaitIDs("recent")
	s.stop(lagging)

	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	opened := time.Now()
	transaction := mongo.NewSessionContext(t.Context(), session)
	require.NoError(t, s.store.Append(transaction, core.Event{ID: "late", AggregateID: "late", Type: "thing.happened", Payload: []byte(`{}`)}))

	needed := s.appendMany("needed", 50)
	other := *s
	other.config.Route = "cleaning"
	other.config.Relay = []string{"retention: 1s", "clean_interval: 300ms"}
	cleaning := other.hold()
	left := func(prefix string) int64 {
		n, err := log.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + prefix}}}})
		require.NoError(t, err)
		return n
	}
	pass(open - time.Since(opened))
	require.NoError(t, session.CommitTransaction(t.Context()))
	eventually(t, time.Minute, "the removal of what both cursors passed", func() bool { return left("passed") == 0 })
	require.EqualValues(t, len(needed), left("needed"), "the cleaner removed what a cursor still needs")
	require.EqualValues(t, 1, left("late"), "the cleaner removed what a cursor still needs")

	garbage := bson.D{{Key: "_data", Value: "8200000000"}}
	_, err = s.db.Collection("outbox_cursors").UpdateByID(t.Context(), "kafka",
		bson.D{{Key: "$set", Value: bson.D{{Key: "token", Value: garbage}}}})
	require.NoError(t, err)
	before := len(s.collector.Records())
	lagging = s.hold()
	eventually(t, time.Minute, "the delivery of what the cleaner kept", func() bool {
		require.NoError(t, s.collector.CatchUp(t.Context()))
		arrived := map[string]bool{}
		for _, r := range s.collector.Records()[before:] {
			arrived[r.ID] = true
		}
		for _, id := range append(needed, "late") {
			if !arrived[id] {
				return false
			}
		}
		return true
	})
	pass(margin + time.Second)
	s.append("last") // takes both cursors further than the margin
	eventually(t, time.Minute, "the removal of what was delivered", func() bool { return left("needed")+left("late") == 0 })
	s.stop(lagging)
	s.stop(cleaning)
	results.add(t.Name(), fmt.Sprintf("transaction open for %s", open), "nothing needed was removed")
}

func (s *stage) appendMany(prefix string, n int) []string {
	s.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	s.append(ids...)
	return ids
}
