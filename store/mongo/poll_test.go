package mongo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// polled are stores whose log is polled, on a replica set and on a standalone.
func polled(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, db := range map[string]func(testing.TB, ...*options.ClientOptions) *mongo.Database{
		"replica set": servicetest.Database, "standalone": servicetest.StandaloneDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStore(t, db(t), Config{
				Poll: true, AllowNoTransaction: name == "standalone",
				PollInterval: 20 * time.Millisecond, ReadWait: 100 * time.Millisecond,
			}))
		})
	}
}

// pollOn reads without settling until there are n entries.
func pollOn(t *testing.T, c *cursor, limit core.ReadLimit, n int) []core.Entry {
	t.Helper()
	var got []core.Entry
	for len(got) < n {
		b, err := c.Read(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Entries...)
	}
	return got
}

// nothing fails unless a read comes back empty.
func nothing(t *testing.T, c *cursor) {
	t.Helper()
	for range 3 {
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Entries) > 0 {
			t.Fatalf("read %v, want nothing", idsIn(b.Entries))
		}
	}
}

func TestAPollReadsWhatIsNotMarked(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		marked := foreignDoc("marked", time.Now())
		marked[6].Value = time.Now()
		insert(t, s.log, marked)
		appendIDs(t, s, "a", "b", "c")
		c := cursorOf(t, s, core.Start{})
		got := pollOn(t, c, core.ReadLimit{}, 3)
		wantIDs(t, got, "a", "b", "c")
		wantRising(t, got)
		// In flight nothing comes twice, and new ones come.
		nothing(t, c)
		appendIDs(t, s, "d")
		wantIDs(t, pollOn(t, c, core.ReadLimit{}, 1), "d")
		nothing(t, c)
		saveBatch(t, c, core.Batch{Entries: got[:2]})
		nothing(t, c)
		// What was not marked belongs to the next term.
		c = nextTerm(t, c)
		rest := pollOn(t, c, core.ReadLimit{}, 2)
		wantIDs(t, rest, "c", "d")
		wantRising(t, append(got[:2:2], rest...))
		saveBatch(t, c, core.Batch{Entries: rest})
		nothing(t, c)
		if n := count(t, s.log, bson.D{{Key: "published_at", Value: nil}}); n != 0 {
			t.Errorf("%d events are not marked", n)
		}
		nothing(t, nextTerm(t, c))
	})
}

func TestAPollReadsEveryDocumentOnceWhateverItsTypes(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		n := insertOdd(t, s)
		c := cursorOf(t, s, core.Start{})
		got := pollOn(t, c, core.ReadLimit{Events: 50}, n)
		wantOnce(t, got)
		wantAllDocuments(t, s, got)
		wantRising(t, got)
		nothing(t, c)
		saveBatch(t, c, core.Batch{Entries: got})
		nothing(t, c)
		if left := len(c.reader.polling.inFlight); left != 0 {
			t.Errorf("%d settled documents are still taken for in flight", left)
		}
	})
}

func TestAPollFindsWhatIsCommittedLate(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true, PollInterval: 20 * time.Millisecond, ReadWait: 100 * time.Millisecond})
	late, commit := openTransaction(t, s, "late")
	appendIDs(t, s, "a", "b")
	c := cursorOf(t, s, core.Start{})
	got := pollOn(t, c, core.ReadLimit{}, 2)
	saveBatch(t, c, core.Batch{Entries: got})
	commit()
	<-late
	more := pollOn(t, c, core.ReadLimit{}, 1)
	wantIDs(t, more, "late")
	wantRising(t, append(got, more...))
}

func TestAPollUnderWritersMissesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true, PollInterval: 5 * time.Millisecond, ReadWait: 100 * time.Millisecond})
	w := startWriters(t, s, 8)
	c := cursorOf(t, s, core.Start{})
	var got []core.Entry
	for len(got) < 500 {
		b, err := c.Read(t.Context(), core.ReadLimit{Events: 30})
		if err != nil {
			t.Fatal(err)
		}
		saveBatch(t, c, b)
		got = append(got, b.Entries...)
	}
	w.stop()
	appendIDs(t, s, "end")
	rest, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "end") })
	got = append(got, rest...)
	wantAll(t, s, got)
	wantOnce(t, got)
	wantRising(t, got)
	wantWritersOrder(t, got)
}

func TestAPollKeepsFewInMind(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		want := numbered(0, 1500)
		fillLog(t, s, 10, want...)
		c := cursorOf(t, s, core.Start{})
		var got []core.Entry
		limit := core.ReadLimit{Events: 10}
		most := 0
		for len(got) < len(want) {
			b, err := c.Read(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			saveBatch(t, c, b)
			got = append(got, b.Entries...)
			most = max(most, len(c.reader.polling.inFlight))
		}
		wantIDs(t, got, want...)
		if bound := 3 * sweepReads * limit.Events; most > bound {
			t.Errorf("%d documents were kept in mind, want at most %d", most, bound)
		}
	})
}

func TestAPollBeginsWhereItsCursorBegan(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		stamp := func(id string, written time.Time) bson.D {
			return append(foreignDoc(id, written), bson.E{Key: "seq", Value: bson.Timestamp{T: uint32(written.Unix()), I: 1}}) //nolint:gosec // until 2106
		}
		insert(t, s.log, stamp("old", at.Add(-time.Minute)), stamp("young", at), foreignDoc("foreign old", at.Add(-time.Minute)), foreignDoc("foreign young", at))
		c := cursorOf(t, s, core.Start{At: at})
		got := pollOn(t, c, core.ReadLimit{}, 2)
		wantIDs(t, got, "foreign young", "young")
		saveBatch(t, c, core.Batch{Entries: got})
		c = nextTerm(t, c)
		nothing(t, c)
	})
}

func TestAPollDoesNotBelieveASeqFromTheFuture(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		future := bson.Timestamp{T: uint32(time.Now().Add(100 * 24 * time.Hour).Unix()), I: 1} //nolint:gosec // until 2106
		insert(t, s.log, append(foreignDoc("future", time.Now()), bson.E{Key: "seq", Value: future}))
		c := cursorOf(t, s, core.Start{})
		got := pollOn(t, c, core.ReadLimit{}, 1)
		if at := timestampOf(got[0].Mark.Position().Time); !at.Before(future) {
			t.Errorf("its place is %v", at)
		}
		appendIDs(t, s, "a")
		wantRising(t, append(got, pollOn(t, c, core.ReadLimit{}, 1)...))
	})
}

func TestACursorThatIsNoLongerPolledMissesNothing(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s := newStore(t, db, Config{Poll: true, PollInterval: 20 * time.Millisecond, ReadWait: 100 * time.Millisecond})
	late, commit := openTransaction(t, s, "late")
	appendIDs(t, s, "a", "b")
	c := cursorOf(t, s, core.Start{})
	saveBatch(t, c, core.Batch{Entries: pollOn(t, c, core.ReadLimit{}, 2)})
	insert(t, s.log, foreignDoc("f1", time.Now()), foreignDoc("f2", time.Now().Add(time.Second)))
	c = nextTerm(t, c)
	// The place of a foreign event tells nothing about the others.
	got, err := c.Read(t.Context(), core.ReadLimit{Events: 1})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, got.Entries, "f1")
	saveBatch(t, c, got)
	c.reader.close(t.Context())
	commit()
	<-late
	appendIDs(t, s, "c")
	s = newStore(t, db, impatient)
	wantIDs(t, catchUp(t, cursorOf(t, s, core.Start{})), "late", "c", "f2")
}

func TestASweepShowsNothingWithoutWhatWasCommittedBefore(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true, PollInterval: 20 * time.Millisecond, ReadWait: 100 * time.Millisecond})
	late, commit := openTransaction(t, s, "late")
	want := numbered(0, 20)
	fillLog(t, s, 10, want...)
	c := cursorOf(t, s, core.Start{})
	limit := core.ReadLimit{Events: 10}
	got := pollOn(t, c, limit, 10) // the sweep has passed the place of the late event
	commit()
	<-late
	appendIDs(t, s, "after")
	got = append(got, pollOn(t, c, limit, 12)...)
	wantIDs(t, got, append(want, "late", "after")...)
}

func TestPlacesOfATermAreBehindThoseOfEarlierTerms(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		insert(t, s.log, foreignDoc("a", time.Now()), foreignDoc("b", time.Now().Add(time.Second)))
		c := cursorOf(t, s, core.Start{})
		got := pollOn(t, c, core.ReadLimit{}, 2)
		c = nextTerm(t, c)
		wantRising(t, append(got, pollOn(t, c, core.ReadLimit{}, 2)...))
	})
}

func TestASweepFollowsTheIndexOfWhatIsNotMarked(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Poll: true})
	fillLog(t, s, 10, numbered(0, 2000)...)
	if _, err := s.log.UpdateMany(t.Context(), bson.D{{Key: "_id", Value: op("$lt", "e001900")}}, op("$set", op("published_at", time.Now()))); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]bson.Timestamp{"beginning": {}, "a time": {T: 5}} {
		p := newPoll(newReader(s, readerConfig{doc: cursorDoc{From: from}}))
		answer, err := s.db.RunCommand(t.Context(), bson.D{
			{Key: "explain", Value: bson.D{{Key: "find", Value: "outbox"}, {Key: "filter", Value: p.filter()}, {Key: "sort", Value: s.scanOrder()}}},
			{Key: "verbosity", Value: "executionStats"},
		}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		if examined := answer.Lookup("executionStats", "totalDocsExamined").AsInt64(); examined != 100 {
			t.Errorf("from %s: %d documents were examined for 100", name, examined)
		}
		if plan := answer.Lookup("queryPlanner", "winningPlan").Document(); plan.Lookup("stage").StringValue() == "SORT" {
			t.Errorf("from %s: the sweep is sorted in memory", name)
		}
	}
}

func TestAnIdlePollAsksOncePerInterval(t *testing.T) {
	t.Parallel()
	sent := &commands{}
	s := newStore(t, servicetest.Database(t, sent.options()), Config{Poll: true, PollInterval: 50 * time.Millisecond, ReadWait: 500 * time.Millisecond})
	c := cursorOf(t, s, core.Start{})
	nothing(t, c)
	sent.take()
	b, err := c.Read(t.Context(), core.ReadLimit{})
	if err != nil || len(b.Entries) > 0 {
		t.Fatal(b, err)
	}
	got := names(sent.take())
	if want := 11; len(got) > want || len(got) == 0 || slices.ContainsFunc(got, func(name string) bool { return name != "find" }) {
		t.Errorf("an idle read of ten intervals sent %d commands: %v", len(got), got)
	}
}

func TestEntriesOfAPollNameNoTimeThatNobodyKnows(t *testing.T) {
	t.Parallel()
	polled(t, func(t *testing.T, s *Store) {
		insert(t, s.log, foreignDoc("foreign", time.Now()))
		appendIDs(t, s, "native")
		for _, e := range pollOn(t, cursorOf(t, s, core.Start{}), core.ReadLimit{}, 2) {
			if known := !e.CommittedAt.IsZero(); known != (e.Event.ID == "native") {
				t.Error(fmt.Sprint(e.Event.ID, " was committed at ", e.CommittedAt))
			}
		}
	})
}
