package tests

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestAnOplogThatRolledOverLosesNothing stops a relay for so long that the
// server no longer knows its place: error 286, for real.
func TestAnOplogThatRolledOverLosesNothing(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{OplogSizeMB: 8})
	s := newStage(t, servers{uri: server.URL()}, mongostore.Config{})
	first := s.hold()
	s.append("before")
	s.awaitIDs("before")
	s.stop(first)

	s.append("missed-1", "missed-2")
	s.rollOplogOver()
	s.append("missed-3")

	address := s.listenAdmin()
	second := s.hold()
	s.awaitIDs("missed-1", "missed-2", "missed-3")
	s.append("after")
	s.awaitIDs("after")
	require.Equal(t, 1, second.Count("level=WARN"), second.Log())
	_, metrics := get(t, address, "/metrics")
	require.Equal(t, 1, metric(metrics, "outbox_cursor_recovered_total"), metrics)
	s.stop(second)

	third := s.hold() // its place is known again
	s.append("later")
	s.awaitIDs("later")
	s.stop(third)
	require.Zero(t, third.Count("level=WARN"), third.Log())
	results.add(t.Name(), "error 286", "one warning, one recovery, nothing lost")
}

// rollOplogOver writes until the server refuses to go on from the saved token.
func (s *stage) rollOplogOver() {
	s.t.Helper()
	var cursor struct {
		Token bson.Raw `bson:"token"`
	}
	require.NoError(s.t, s.db.Collection("outbox_cursors").FindOne(s.t.Context(), bson.D{}).Decode(&cursor))
	require.NotEmpty(s.t, cursor.Token)
	junk := s.db.Client().Database(s.db.Name() + "-junk")
	s.t.Cleanup(func() { _ = junk.Drop(s.t.Context()) })
	megabyte := make([]byte, 1<<20)
	eventually(s.t, 3*time.Minute, "error 286", func() bool {
		for range 4 {
			_, err := junk.Collection("junk").InsertOne(s.t.Context(), bson.D{{Key: "data", Value: megabyte}})
			require.NoError(s.t, err)
		}
		stream, err := s.db.Collection("outbox").Watch(s.t.Context(), mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(cursor.Token))
		if err == nil {
			require.NoError(s.t, stream.Close(s.t.Context()))
			return false
		}
		var refused mongo.ServerError
		return errors.As(err, &refused) && refused.HasErrorCode(286)
	})
}
