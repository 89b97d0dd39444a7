package mongo

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func lagOf(t *testing.T, s *Store, name string) core.Lag {
	t.Helper()
	lag, err := s.Lag(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lag
}

func TestLagCountsWhatIsAfterThePosition(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	put(t, s, "a", 3*time.Hour)
	put(t, s, "b", 2*time.Hour)
	put(t, s, "c", time.Hour)
	if lag := lagOf(t, s, "none"); lag.Events != 3 || lag.Age.Round(time.Minute) != 3*time.Hour {
		t.Errorf("a cursor that does not exist: %+v", lag)
	}
	caughtUp(t, s, "kafka", 150*time.Minute)
	if lag := lagOf(t, s, "kafka"); lag.Events != 2 || lag.Age.Round(time.Minute) != 2*time.Hour {
		t.Errorf("got %+v, want 2 events for 2 hours", lag)
	}
	scan := scanState{Seq: bson.Timestamp{T: uint32(time.Now().Add(-90 * time.Minute).Unix())}}
	setCursor(t, s, "kafka", bson.D{{Key: "scan", Value: scan}})
	if lag := lagOf(t, s, "kafka"); lag.Events != 1 || lag.Age.Round(time.Minute) != time.Hour {
		t.Errorf("in a scan: got %+v, want 1 event for an hour", lag)
	}
	place(t, s, "kafka", 0)
	if lag := lagOf(t, s, "kafka"); lag != (core.Lag{}) {
		t.Errorf("at the end: got %+v", lag)
	}
}

func TestLagLeavesOutWhatIsMarkedWhereMarkingRules(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{AllowNoTransaction: true})
	put(t, s, "a", 3*time.Hour, bson.E{Key: "published_at", Value: time.Now()})
	put(t, s, "b", 2*time.Hour)
	putForeign(t, s, "c", time.Now().Add(-time.Hour))
	acquire(t, s, "kafka", "me")
	if lag := lagOf(t, s, "kafka"); lag.Events != 2 {
		t.Errorf("got %+v, want 2 events", lag)
	}
}

func TestTheFirstScansLagLeavesOutWhatItSkips(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	put(t, s, "a", 3*time.Hour, bson.E{Key: "published_at", Value: time.Now()})
	put(t, s, "b", 2*time.Hour)
	acquire(t, s, "kafka", "me")
	if lag := lagOf(t, s, "kafka"); lag.Events != 1 {
		t.Errorf("got %+v, want 1 event", lag)
	}
}
