package mongo

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// oddValues are one of each BSON type, and arrays that hold what queries look
// for.
func oddValues(t testing.TB) map[string]any {
	t.Helper()
	decimal, err := bson.ParseDecimal128("1.5")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	stamp := bson.Timestamp{T: 7, I: 1}
	return map[string]any{
		"timestamp": stamp, "null": nil, "double": 1.5, "int": int32(1), "long": int64(1), "decimal": decimal,
		"string": "s", "empty string": "", "document": bson.D{{Key: "a", Value: 1}}, "array": bson.A{1, "x"}, "empty array": bson.A{},
		"array of timestamps": bson.A{stamp}, "array of nulls": bson.A{nil}, "array of dates": bson.A{now}, "array of arrays": bson.A{bson.A{1}},
		"binary": []byte{1}, "object id": bson.NewObjectID(), "bool": true, "date": now, "old date": time.Unix(-1, 0), "regex": bson.Regex{Pattern: "a"},
		"javascript": bson.JavaScript("x"), "min key": bson.MinKey{}, "max key": bson.MaxKey{}, "undefined": bson.Undefined{}, "symbol": bson.Symbol("s"),
	}
}

// insertOdd inserts a document for each combination of types of seq and
// occurred_at, and of fields that are missing.
func insertOdd(t testing.TB, s *Store) (n int) {
	t.Helper()
	values := oddValues(t)
	var docs []any
	for seqName, seq := range values {
		for dateName, date := range values {
			id := seqName + " and " + dateName
			docs = append(docs, append(foreignDoc(id, date), bson.E{Key: "seq", Value: seq}))
		}
		docs = append(docs, foreignDoc("date "+seqName, seq), append(foreignDoc("seq "+seqName, nil), bson.E{Key: "seq", Value: seq}))
	}
	docs = append(docs, foreignDoc("neither", nil))
	for i, doc := range docs {
		// Two arrays can't be in one index.
		if _, err := s.log.InsertOne(t.Context(), doc); err == nil {
			n++
		} else if !hasCode(err, 171) {
			t.Fatalf("inserting document %d: %v", i, err)
		}
	}
	return n
}

func TestAScanReadsEveryDocumentOnceWhateverItsTypes(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{true, false} {
		t.Run(fmt.Sprint("indexed ", indexed), func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			n := insertOdd(t, s)
			if !indexed {
				if err := s.log.Indexes().DropAll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got := catchUp(t, cursorOf(t, s, core.Start{}))
			if len(got) != n {
				t.Errorf("read %d documents, want %d", len(got), n)
			}
			wantOnce(t, got)
			wantAllDocuments(t, s, got)
			wantRising(t, got)
		})
	}
}

func TestEachPartOfAScanFollowsTheIndex(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	fillLog(t, s, 10, numbered(0, 1000)...)
	for i := range 100 {
		insert(t, s.log, foreignDoc(fmt.Sprint("dated-", i), time.Now()), foreignDoc(fmt.Sprint("undated-", i), nil))
		insert(t, s.log, append(foreignDoc(fmt.Sprint("odd-", i), time.Now()), bson.E{Key: "seq", Value: int64(i)}))
	}
	r := newReader(s, readerConfig{margin: time.Minute, queued: notQueued, recovering: noJobs})
	for range 50 {
		ago := time.Now().Add(-time.Hour)
		insert(t, s.log, foreignDoc(bson.NewObjectID(), ago), foreignDoc(bson.NewObjectIDFromTimestamp(ago), ago))
	}
	parts := newScan(r, scanState{}).plan()
	from := newScan(r, scanState{From: bson.Timestamp{T: uint32(time.Now().Add(-time.Minute).Unix())}}).plan() //nolint:gosec // until 2106
	parts = append(parts, from[len(parts):]...)
	for i, want := range []int{1000, 200, 100, 100, 0, 50, 0} {
		answer, err := s.db.RunCommand(t.Context(), bson.D{
			{Key: "explain", Value: bson.D{{Key: "find", Value: "outbox"}, {Key: "filter", Value: parts[i].filter}, {Key: "sort", Value: s.scanOrder()}}},
			{Key: "verbosity", Value: "executionStats"},
		}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		stats := answer.Lookup("executionStats").Document()
		returned, examined := stats.Lookup("nReturned").AsInt64(), stats.Lookup("totalDocsExamined").AsInt64()
		if i >= 5 {
			// The server may also look at what has a young ObjectId, and sort it.
			if returned != int64(want) || examined > 50 {
				t.Errorf("part %d returned %d of %d documents examined, want %d", i, returned, examined, want)
			}
			continue
		}
		if returned != int64(want) || examined != returned {
			t.Errorf("part %d returned %d of %d documents examined, want %d", i, returned, examined, want)
		}
		if plan := answer.Lookup("queryPlanner", "winningPlan").Document(); plan.Lookup("stage").StringValue() == "SORT" {
			t.Errorf("part %d is sorted in memory", i)
		}
	}
}

func TestPublishedEventsAreNotPublishedAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	var docs []any
	for i := range 1000 {
		doc := foreignDoc(fmt.Sprint("old-", i), time.Now().Add(-time.Hour))
		doc[6].Value = time.Now()
		docs = append(docs, doc)
	}
	docs = append(docs, foreignDoc("new", time.Now()), foreignDoc("undated", nil))
	insert(t, s.log, docs...)
	appendIDs(t, s, "native")
	got := catchUp(t, cursorOf(t, s, core.Start{}))
	wantIDs(t, got, "native", "new", "undated")

	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "all", Owner: "test", Start: core.Start{IncludePublished: true}})
	if err != nil {
		t.Fatal(err)
	}
	if all := catchUp(t, c.(*cursor)); len(all) != 1003 {
		t.Errorf("with the published ones there are %d, want 1003", len(all))
	}
	_ = c.Release(t.Context())
}

func TestAStartAtATimeLeavesOutWhatIsOlder(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	native := func(id string, written time.Time) bson.D {
		return append(foreignDoc(id, written), bson.E{Key: "seq", Value: bson.Timestamp{T: uint32(written.Unix()), I: 1}}) //nolint:gosec // until 2106
	}
	insert(t, s.log,
		native("old", at.Add(-time.Minute)), native("young", at), native("younger", at.Add(time.Minute)),
		foreignDoc("foreign old", at.Add(-time.Minute)), foreignDoc("foreign young", at), foreignDoc("foreign undated", nil))
	c := cursorOf(t, s, core.Start{At: at})
	b, err := c.Read(t.Context(), core.ReadLimit{Events: 1})
	if err != nil {
		t.Fatal(err)
	}
	saveBatch(t, c, b)
	// A scan that goes on doesn't go back behind the start, and neither does a
	// recovery.
	c = nextTerm(t, c)
	got := append(b.Entries, catchUp(t, c)...)
	want := []string{"young", "younger", "foreign young", "foreign undated"}
	if have := firsts(idsIn(got)); !slices.Equal(have, want) {
		t.Errorf("read %v, want %v", have, want)
	}
	c.reader.close(t.Context())
	setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
	c = cursorOf(t, s, core.Start{})
	for _, id := range idsIn(catchUp(t, c)) {
		if !slices.Contains(want, id) {
			t.Errorf("a recovery read %q, which is older than the start", id)
		}
	}
}

func TestARecoveryReadsForeignEventsBackToTheSlack(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{ReadWait: impatient.ReadWait, Margin: time.Minute, ClockSlack: 10 * time.Minute})
	c := cursorOf(t, s, core.Start{})
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	insert(t, s.log,
		foreignDoc("ancient", ago(time.Hour)), foreignDoc("slow clock", ago(9*time.Minute)), foreignDoc("fresh", ago(0)), foreignDoc("undated", nil),
		append(foreignDoc("odd", ago(0)), bson.E{Key: "seq", Value: "1"}), append(foreignDoc("odd ancient", ago(time.Hour)), bson.E{Key: "seq", Value: "2"}))
	if first := catchUp(t, c); len(first) != 6 {
		t.Fatalf("the first scan read %v", idsIn(first))
	}
	c.reader.close(t.Context())
	setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
	c = cursorOf(t, s, core.Start{})
	wantIDs(t, catchUp(t, c), "slow clock", "fresh", "undated", "odd")
}

// A producer in another language may write when the thing happened, long before
// the insert. Its ObjectId tells when that was.
func TestARecoveryReadsWhatHappenedLongBeforeItWasWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{ReadWait: impatient.ReadWait, Margin: time.Minute, ClockSlack: time.Minute})
	ago := time.Now().Add(-time.Hour)
	c := cursorOf(t, s, core.Start{})
	// These were inserted when they happened.
	settled := foreignDoc(bson.NewObjectIDFromTimestamp(ago), ago)
	insert(t, s.log, settled)
	if first := catchUp(t, c); len(first) != 1 {
		t.Fatalf("the first scan read %v", idsIn(first))
	}
	c.reader.close(t.Context())
	late, odd := bson.NewObjectID(), bson.NewObjectID()
	insert(t, s.log, foreignDoc(late, ago), append(foreignDoc(odd, ago), bson.E{Key: "seq", Value: "1"}))
	setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
	c = cursorOf(t, s, core.Start{})
	got := catchUp(t, c)
	wantIDs(t, got, late.Hex(), odd.Hex())
	wantRising(t, got)
	// The stream goes on behind them.
	appendIDs(t, s, "next")
	wantIDs(t, readTo(t, c, "next"), "next")
}

// A first scan whose snapshot is gone must find them too when it goes on.
func TestAScanThatGoesOnReadsWhatHappenedLongBeforeItWasWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{ReadWait: impatient.ReadWait, Margin: time.Second, ClockSlack: time.Second})
	for i := range 4 {
		insert(t, s.log, foreignDoc(fmt.Sprint("old-", i), time.Now().Add(time.Duration(i-100)*time.Minute)))
	}
	c := cursorOf(t, s, core.Start{})
	b, err := c.Read(t.Context(), core.ReadLimit{Events: 3})
	if err != nil {
		t.Fatal(err)
	}
	saveBatch(t, c, core.Batch{Entries: b.Entries})
	late := bson.NewObjectID()
	insert(t, s.log, foreignDoc(late, time.Now().Add(-time.Hour*24)))
	c = nextTerm(t, c)
	rest := catchUp(t, c)
	if have := firsts(append(idsIn(b.Entries), idsIn(rest)...)); len(have) != 5 || !holds(rest, late.Hex()) {
		t.Errorf("read %v", have)
	}
}

func TestOldForeignEventsAreKnownToBeQueued(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	insert(t, s.log, foreignDoc("undated", nil))
	// The job was written long ago, so that no term loads it by its position.
	insert(t, s.jobs, bson.D{
		{Key: "_id", Value: bson.D{{Key: "log", Value: s.Source()}, {Key: "cursor", Value: "route"}, {Key: "event", Value: "undated"}}},
		{Key: "cursor", Value: "route"},
		{Key: "position", Value: stored(core.Position{Time: 1})},
	})
	c := cursorOf(t, s, core.Start{Now: true})
	appendIDs(t, s, "a")
	readTo(t, c, "a")
	c.reader.close(t.Context())
	setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
	c = cursorOf(t, s, core.Start{})
	got := catchUp(t, c)
	wantIDs(t, got, "a", "undated")
	if got[0].Queued || !got[1].Queued {
		t.Errorf("queued: %v and %v, want false and true", got[0].Queued, got[1].Queued)
	}
}

func TestWhatAScanReturnedIsRememberedExactly(t *testing.T) {
	t.Parallel()
	var set returned
	id := func(n int) bson.RawValue { return valueOf(t, int64(n)) }
	// Three snapshots, of which each shows more: every third number, every second
	// one, all. Each but the last ends early.
	seen := map[int]bool{}
	for snapshot, shows := range []func(n int) bool{
		func(n int) bool { return n%3 == 0 && n < 60_000 },
		func(n int) bool { return (n%3 == 0 || n%2 == 0) && n < 30_000 },
		func(n int) bool { return n < 90_000 },
	} {
		set.rewind()
		for n := range 90_000 {
			if !shows(n) {
				continue
			}
			// Pairs of documents have one seq.
			if got := set.has(uint64(n/2), id(n)); got != seen[n] {
				t.Fatalf("snapshot %d: document %d was returned before: %v, want %v", snapshot, n, got, seen[n])
			} else if !got {
				set.add(uint64(n/2), id(n))
				seen[n] = true
			}
		}
	}
	bytes := 0
	for _, chunk := range set.now.chunks {
		bytes += len(chunk)
	}
	if len(seen) != 90_000 || bytes > 6*90_000 {
		t.Errorf("%d documents take %d bytes", len(seen), bytes)
	}
}

func TestATokenTellsItsTime(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	appendIDs(t, s, "a")
	m := readTo(t, c, "a")[0].Mark.(*mark)
	if at, ok := tokenTime(m.token); !ok || numberOf(at) != m.pos.Time {
		t.Errorf("the token says %v, the event was committed at %v", at, timestampOf(m.pos.Time))
	}
	for _, token := range []any{bson.D{}, bson.D{{Key: "_data", Value: 5}}, bson.D{{Key: "_data", Value: "82"}}, bson.D{{Key: "_data", Value: "garbage-garbage-garbage"}}} {
		if at, ok := tokenTime(marshal(t, token)); ok {
			t.Errorf("%v says %v", token, at)
		}
	}
}

// TestADrainOfLargeEventsIsBounded reads far more than fits into the bound.
func TestADrainOfLargeEventsIsBounded(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			c := cursorOf(t, s, start)
			want := numbered(0, 40)
			for chunk := range slices.Chunk(want, 8) {
				fillLog(t, s, 1<<20, chunk...)
			}
			var batches []int
			got, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool {
				batches = append(batches, len(got))
				return len(got) == len(want)
			})
			wantIDs(t, got, want...)
			if asked := c.reader.mean.batchSize(core.ReadLimit{}.OrDefaults()); asked > 8 {
				t.Errorf("the server is asked for %d documents of 1 MiB, a read takes 8 MiB", asked)
			}
			for i := 1; i < len(batches); i++ {
				if n := batches[i] - batches[i-1]; n > 8 {
					t.Errorf("a read of at most 8 MiB gave %d events of 1 MiB", n)
				}
			}
		})
	}
}

func TestAFailedCallForJobsIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	insert(t, s.log, foreignDoc("a", time.Now()), foreignDoc("b", nil))
	calls := 0
	r := newReader(s, readerConfig{
		doc: cursorDoc{Name: "route", Scan: &scanState{First: true}}, margin: time.Minute, queued: notQueued,
		recovering: func(context.Context, bson.Timestamp) error {
			if calls++; calls < 3 {
				return context.DeadlineExceeded
			}
			return nil
		},
	})
	defer r.close(t.Context())
	var got []core.Entry
	for len(got) < 2 {
		b, err := r.read(t.Context(), core.ReadLimit{}.OrDefaults())
		if (err != nil) != (calls < 3) {
			t.Fatalf("call %d: %v", calls, err)
		}
		got = append(got, b.Entries...)
	}
	wantIDs(t, got, "a", "b")
	if calls != 3 {
		t.Errorf("jobs were loaded %d times", calls)
	}
}
