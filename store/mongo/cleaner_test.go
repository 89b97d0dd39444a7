package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

const day = 24 * time.Hour

// put stores an event as if it had been written that long ago.
func put(t *testing.T, s *Store, id any, age time.Duration, more ...bson.E) bson.Timestamp {
	t.Helper()
	seq := bson.Timestamp{T: uint32(time.Now().Add(-age).Unix()), I: 1}
	doc := bson.D{
		{Key: "_id", Value: id},
		{Key: "seq", Value: seq},
		{Key: "aggregate_id", Value: "k"},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: ""},
	}
	if _, err := s.log.InsertOne(t.Context(), append(doc, more...)); err != nil {
		t.Fatal(err)
	}
	return seq
}

// putForeign stores an event without a seq.
func putForeign(t *testing.T, s *Store, id any, occurredAt any) {
	t.Helper()
	doc := bson.D{{Key: "_id", Value: id}, {Key: "aggregate_id", Value: "k"}, {Key: "event_type", Value: "t"}, {Key: "payload", Value: ""}}
	if occurredAt != nil {
		doc = append(doc, bson.E{Key: "occurred_at", Value: occurredAt})
	}
	if _, err := s.log.InsertOne(t.Context(), doc); err != nil {
		t.Fatal(err)
	}
}

// caughtUp makes a cursor whose position is that long ago.
func caughtUp(t *testing.T, s *Store, name string, ago time.Duration) {
	t.Helper()
	acquire(t, s, name, "me")
	place(t, s, name, ago)
}

func place(t *testing.T, s *Store, name string, ago time.Duration) {
	t.Helper()
	position := storedPosition{Time: bson.Timestamp{T: uint32(time.Now().Add(-ago).Unix())}}
	setCursor(t, s, name, bson.D{{Key: "position", Value: position}, {Key: "scan", Value: nil}})
}

func clean(t *testing.T, s *Store, cursors ...string) core.CleanResult {
	t.Helper()
	result, err := s.Clean(t.Context(), core.CleanRequest{Retention: day, Cursors: cursors})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func left(t *testing.T, s *Store) map[any]bool {
	t.Helper()
	found, err := s.log.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct {
		ID any `bson:"_id"`
	}
	if err := found.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	ids := map[any]bool{}
	for _, d := range docs {
		ids[d.ID] = true
	}
	return ids
}

func wantLeft(t *testing.T, s *Store, ids ...any) {
	t.Helper()
	got := left(t, s)
	if len(got) != len(ids) {
		t.Errorf("left %v, want %v", got, ids)
		return
	}
	for _, id := range ids {
		if !got[id] {
			t.Errorf("left %v, want %v", got, ids)
		}
	}
}

func TestTheCleanerRemovesWhatIsOldAndBehindEveryCursor(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Margin: time.Hour})
	put(t, s, "old", 50*time.Hour)
	put(t, s, "older than the retention", 25*time.Hour)
	put(t, s, "young", 23*time.Hour)
	caughtUp(t, s, "kafka", 0)
	if got := clean(t, s, "kafka"); got.Removed != 2 || got.HeldBy != "" {
		t.Errorf("got %+v", got)
	}
	wantLeft(t, s, "young")
}

func TestTheCleanerStaysBehindALaggingCursorByTheMargin(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Margin: time.Hour})
	put(t, s, "behind", 50*time.Hour)
	put(t, s, "within the margin", 48*time.Hour+30*time.Minute)
	put(t, s, "not delivered", 47*time.Hour)
	caughtUp(t, s, "kafka", 0)
	caughtUp(t, s, "lagging", 48*time.Hour)
	if got := clean(t, s, "kafka"); got.Removed != 1 || got.HeldBy != "lagging" {
		t.Errorf("got %+v", got)
	}
	wantLeft(t, s, "within the margin", "not delivered")
}

func TestTheCleanerStaysBehindARunningScan(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Margin: time.Hour})
	at := func(ago time.Duration) bson.Timestamp { return bson.Timestamp{T: uint32(time.Now().Add(-ago).Unix())} }
	put(t, s, "scanned", 60*time.Hour)
	put(t, s, "not scanned", 50*time.Hour)
	caughtUp(t, s, "kafka", 0)
	for _, scan := range []scanState{{First: true}, {At: at(0), Seq: at(59 * time.Hour)}, {At: at(59 * time.Hour), Seq: at(0)}} {
		setCursor(t, s, "kafka", bson.D{{Key: "scan", Value: scan}})
		removed := clean(t, s, "kafka").Removed
		if !left(t, s)["not scanned"] {
			t.Fatalf("scan %+v: an event was removed before it was scanned", scan)
		}
		if scan.First && removed != 0 {
			t.Errorf("%d events were removed before a scan", removed)
		}
	}
}

func TestTheCleanerWaitsForEveryConfiguredCursor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		put(t, s, "old", 50*time.Hour)
		if got := clean(t, s); got.Removed != 0 {
			t.Errorf("without a cursor: got %+v", got)
		}
		caughtUp(t, s, "kafka", 0)
		if got := clean(t, s, "kafka", "new"); got.Removed != 0 || got.HeldBy != "new" {
			t.Errorf("got %+v, want it held by the new one", got)
		}
		wantLeft(t, s, "old")
	})
}

func TestTheCleanerLeavesWhatAJobRefersTo(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	object := bson.NewObjectID()
	put(t, s, object, 50*time.Hour)
	put(t, s, "old", 50*time.Hour)
	caughtUp(t, s, "kafka", 0)
	c := acquire(t, s, "kafka", "me")
	if _, err := c.park(t.Context(), []core.Parked{parked(markAt(t, object, 10, 1), order("x"))}, true); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	wantLeft(t, s, object)
}

func TestTheCleanerLeavesWhatIsNotMarkedWhereMarkingRules(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{AllowNoTransaction: true})
	marked := bson.E{Key: "published_at", Value: time.Now()}
	put(t, s, "marked", 50*time.Hour, marked)
	put(t, s, "not marked", 60*time.Hour)
	put(t, s, "young", 0, marked)
	putForeign(t, s, "foreign", time.Now().Add(-60*time.Hour))
	putForeign(t, s, "foreign, marked", time.Now().Add(-60*time.Hour))
	if err := s.markPublished(t.Context(), []bson.RawValue{valueOf(t, "foreign, marked")}); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, s, "kafka", 0)
	if got := clean(t, s, "kafka"); got.Removed != 2 {
		t.Errorf("got %+v", got)
	}
	wantLeft(t, s, "not marked", "young", "foreign")
}

// The times of an event without a seq are the producer's: an import of old
// events is not delivered because it is old.
func TestEventsWithoutASeqGoOnlyWhenEveryCursorHasPassedThem(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	long := time.Now().Add(-100 * day)
	putForeign(t, s, "imported", long)
	putForeign(t, s, bson.NewObjectIDFromTimestamp(long), nil)
	putForeign(t, s, "no time at all", nil)
	putForeign(t, s, "young", time.Now())
	caughtUp(t, s, "kafka", time.Minute)
	for range 2 {
		if got := clean(t, s, "kafka"); got.Removed != 0 {
			t.Fatalf("removed %d events that no cursor has passed", got.Removed)
		}
	}
	place(t, s, "kafka", -time.Minute)
	putForeign(t, s, "imported later", long)
	if got := clean(t, s, "kafka"); got.Removed != 2 {
		t.Errorf("got %+v", got)
	}
	wantLeft(t, s, "no time at all", "young", "imported later")
}

func TestTheCleanerRemovesManyInRanges(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	docs := make([]any, 2*cleanRange+1)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprint(i)}, {Key: "seq", Value: bson.Timestamp{T: 1000, I: uint32(i)}}}
	}
	if _, err := s.log.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, s, "kafka", 0)
	sent.take()
	if got := clean(t, s, "kafka"); got.Removed != int64(len(docs)) {
		t.Errorf("got %+v, want all %d", got, len(docs))
	}
	deletes := 0
	for _, name := range names(sent.take()) {
		if name == "delete" {
			deletes++
		}
	}
	if deletes != 3 {
		t.Errorf("%d deletes, want 3", deletes)
	}
}

// What a transaction wrote long ago and has not committed is behind the
// cursor's position by its seq. The margin keeps the cleaner away from it.
func TestAnEventOfAnOpenTransactionOutlivesTheCleaner(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Margin: time.Hour})
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	written := 24*time.Hour + 30*time.Minute
	doc := bson.D{{Key: "_id", Value: "late"}, {Key: "seq", Value: bson.Timestamp{T: uint32(time.Now().Add(-written).Unix()), I: 1}}}
	if _, err := s.log.InsertOne(mongo.NewSessionContext(t.Context(), session), doc); err != nil {
		t.Fatal(err)
	}
	put(t, s, "old", 50*time.Hour)
	caughtUp(t, s, "kafka", day) // in commit order everything up to now
	if got := clean(t, s, "kafka"); got.Removed != 1 {
		t.Errorf("beside the open transaction: got %+v", got)
	}
	if err := session.CommitTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := clean(t, s, "kafka"); got.Removed != 0 || got.HeldBy != "kafka" {
		t.Errorf("got %+v, want it held by the margin", got)
	}
	wantLeft(t, s, "late")
}
