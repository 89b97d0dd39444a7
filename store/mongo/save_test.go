package mongo

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func save(t *testing.T, c *cursor, marks ...core.Mark) {
	t.Helper()
	if err := c.Save(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
}

func TestSaveStoresWhereTheNextTermReadsOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		c.marks = false
		scanned := markAt(t, "a", 10, 1)
		scanned.scan = &scanState{At: bson.Timestamp{T: 10}, Seq: bson.Timestamp{T: 9, I: 3}}
		save(t, c, scanned)
		doc := storedCursor(t, s, "kafka")
		if doc.Scan == nil || doc.Scan.Seq != scanned.scan.Seq || doc.Token != nil || doc.Position != stored(scanned.pos) || doc.Settled != 1 {
			t.Errorf("after an event of a scan: %+v", doc)
		}
		streamed := markAt(t, "b", 11, 0)
		streamed.token = marshal(t, bson.D{{Key: "_data", Value: "$82"}})
		save(t, c, markAt(t, "x", 10, 2), streamed)
		doc = storedCursor(t, s, "kafka")
		if doc.Scan != nil || !slices.Equal(doc.Token, streamed.token) || doc.Position != stored(streamed.pos) || doc.Settled != 3 {
			t.Errorf("after an event of the stream: %+v", doc)
		}
		// A place between documents moves the token and settles nothing.
		idle := &mark{pos: core.Position{Time: numberOf(bson.Timestamp{T: 12})}, token: marshal(t, bson.D{{Key: "_data", Value: "83"}})}
		save(t, c, idle)
		doc = storedCursor(t, s, "kafka")
		if !slices.Equal(doc.Token, idle.token) || doc.Position != stored(idle.pos) || doc.Settled != 3 {
			t.Errorf("after an idle minute: %+v", doc)
		}
	})
}

func TestThePositionNeverGoesBackWithinATerm(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	save(t, c, markAt(t, "b", 11, 0))
	was := storedCursor(t, s, "kafka")
	late := markAt(t, "a", 10, 0)
	late.token = marshal(t, bson.D{{Key: "_data", Value: "82"}})
	save(t, c, late)
	is := storedCursor(t, s, "kafka")
	if is.Position != was.Position || is.Token != nil {
		t.Errorf("the position went back: %+v", is)
	}
	if is.Revision == was.Revision || is.Settled != was.Settled+1 {
		t.Errorf("the lease was not extended, or the event not counted: %+v", is)
	}
}

func TestSaveMarksWhatWasSettled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		appendNow(t, s, order("a"), order("b"), order("c"))
		c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me", Marking: true})
		if err != nil {
			t.Fatal(err)
		}
		save(t, c.(*cursor), markAt(t, "a", 10, 1), markAt(t, "b", 10, 2))
		published := bson.D{{Key: "published_at", Value: op("$type", "date")}}
		if n := count(t, s.log, published); n != 2 {
			t.Fatalf("%d events are marked, want 2", n)
		}
		if n := count(t, s.log, append(published, bson.E{Key: "_id", Value: "c"})); n != 0 {
			t.Fatal("an event that was not settled is marked")
		}
		var first, again bson.M
		if err := s.log.FindOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}).Decode(&first); err != nil {
			t.Fatal(err)
		}
		save(t, c.(*cursor), markAt(t, "a", 10, 3))
		if err := s.log.FindOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}).Decode(&again); err != nil {
			t.Fatal(err)
		}
		if first["published_at"] != again["published_at"] {
			t.Error("a mark that was set changed")
		}
	})
}

// Position and marks are one: when marking fails neither is there, and the
// events come again.
func TestMarksAndPositionAreWrittenTogether(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	appendNow(t, s, order("a"))
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me", Marking: true})
	if err != nil {
		t.Fatal(err)
	}
	failNext(t, db, "commitTransaction", bson.E{Key: "errorCode", Value: 8000})
	expires := c.Expires()
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err == nil {
		t.Fatal("no error")
	}
	if !c.Expires().Equal(expires) {
		t.Error("a write that was rolled back extended the lease")
	}
	if doc := storedCursor(t, s, "kafka"); !doc.Position.Time.IsZero() {
		t.Errorf("the position was saved: %+v", doc)
	}
	if n := count(t, s.log, bson.D{{Key: "published_at", Value: op("$ne", nil)}}); n != 0 {
		t.Error("the event was marked")
	}
	save(t, c.(*cursor), markAt(t, "a", 10, 1))
	if doc := storedCursor(t, s, "kafka"); doc.Position.Time.T != 10 {
		t.Errorf("the second try saved %+v", doc)
	}
}

func TestASaveTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	c := acquire(t, s, "kafka", "me")
	sent.take()
	save(t, c, markAt(t, "a", 10, 1), markAt(t, "b", 10, 2))
	if got := names(sent.take()); !slices.Equal(got, []string{"update"}) {
		t.Errorf("sent %v, want one update", got)
	}
}

func TestMarksOfAnotherStoreAreRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	if err := c.Save(t.Context(), []core.Mark{foreignMark{}}); err == nil {
		t.Error("no error")
	}
}

type foreignMark struct{}

func (foreignMark) Position() core.Position { return core.Position{} }
