package mongo

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func unpublished(t *testing.T, s *Store) int64 {
	t.Helper()
	return count(t, s.log, bson.D{{Key: "published_at", Value: nil}})
}

// The transaction was open when the cursor began: its event is one of "from now
// on", although it was written before.
func TestAPolledCursorThatStartsNowPassesOverWhatIsThereAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true})
	appendNow(t, s, order("before"))
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(mongo.NewSessionContext(t.Context(), session), order("open")); err != nil {
		t.Fatal(err)
	}
	if _, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "me", Start: core.Start{Now: true}}); err != nil {
		t.Fatal(err)
	}
	if err := session.CommitTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := unpublished(t, s); n != 1 {
		t.Fatalf("%d events are left, want the one of the open transaction", n)
	}
	if doc := storedCursor(t, s, "kafka"); !doc.Pass.IsZero() {
		t.Errorf("passing over is not done: %+v", doc)
	}
}

func TestPassingOverThatWasCutShortIsMadeGood(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true})
	appendNow(t, s, order("before"))
	c, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "me", Start: core.Start{Now: true}})
	if err != nil {
		t.Fatal(err)
	}
	appendNow(t, s, order("after"))
	// As a crash leaves it that came before the marks.
	if _, err := s.log.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$unset", Value: bson.D{{Key: "published_at", Value: ""}}}}); err != nil {
		t.Fatal(err)
	}
	setCursor(t, s, "kafka", bson.D{{Key: "pass", Value: c.doc.Fence}})
	acquire(t, s, "kafka", "me")
	if n := unpublished(t, s); n != 1 {
		t.Errorf("%d events are left, want the later one", n)
	}
	// The snapshot of that time is gone.
	setCursor(t, s, "kafka", bson.D{{Key: "pass", Value: bson.Timestamp{T: 1_000_000}}})
	acquire(t, s, "kafka", "me")
	if doc := storedCursor(t, s, "kafka"); !doc.Pass.IsZero() || doc.From.IsZero() {
		t.Errorf("stored %+v, want the cursor to go on from before its start", doc)
	}
	if n := unpublished(t, s); n != 1 {
		t.Errorf("%d events are left, want none passed over", n)
	}
}
