package mongo

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// largest is the longest text that a document can hold beside little else.
const largest = 16<<20 - 512

func longText(n int) string { return strings.Repeat("x", n) }

func TestWhateverIsTooLargeIsParked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d bson.D) bson.D{
		"a header": func(d bson.D) bson.D {
			return append(d, bson.E{Key: "headers", Value: bson.D{{Key: "h", Value: longText(largest)}}})
		},
		"a header's name": func(d bson.D) bson.D {
			return append(d, bson.E{Key: "headers", Value: bson.D{{Key: longText(8 << 20), Value: bson.A{1}}}})
		},
		"a key":                func(d bson.D) bson.D { d[2].Value = longText(largest); return d },
		"a type":               func(d bson.D) bson.D { d[3].Value = longText(largest); return d },
		"a tenant":             func(d bson.D) bson.D { return append(d, bson.E{Key: "tenant", Value: longText(largest)}) },
		"an id":                func(d bson.D) bson.D { d[0].Value = longText(6 << 20); return d },
		"an id of other type":  func(d bson.D) bson.D { d[0].Value = bson.D{{Key: "x", Value: longText(6 << 20)}}; return d },
		"the longest id":       func(d bson.D) bson.D { d[0].Value = longText(largest); return d },
		"an id and no payload": func(d bson.D) bson.D { d[0].Value = longText(6 << 20); d[4].Value = 5; return d },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, servicetest.Database(t), impatient)
			doc := marshal(t, change(foreignDoc("bad", nil)))
			c := acquire(t, s, "kafka", "me")
			// As a scan reads it; an _id of more than 8 MB can only be inserted in a
			// command that a driver doesn't retry.
			b := &batch{limit: core.ReadLimit{}.OrDefaults()}
			if added, err := c.reader.add(t.Context(), b, found{doc: doc}, core.Position{Time: 1}); !added || err != nil {
				t.Fatal(added, err)
			}
			e := b.Entries[0]
			p := core.Parked{Entry: e, Sink: "events", Failure: core.Failure{Code: core.CodeRejected, Reason: longText(10_000)}}
			for range 2 {
				if err := c.Park(t.Context(), []core.Parked{p}); err != nil {
					t.Fatal(err)
				}
			}
			jobs := jobsOf(t, s)
			if len(jobs) != 1 || len(jobs[0]) > maxDocumentBytes {
				t.Fatalf("%d jobs", len(jobs))
			}
			job, kept := jobs[0], 0
			for _, form := range []string{"reference", "document", "payload"} {
				if !job.Lookup(form).IsZero() {
					kept++
				}
			}
			if kept != 1 || job.Lookup("failure", "code").IsZero() {
				t.Errorf("the job of %d bytes keeps the event in %d forms", len(job), kept)
			}
			if !job.Lookup("reference").IsZero() && len(job) > 16<<10 {
				t.Errorf("a reference takes %d bytes", len(job))
			}
			if err := c.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, holder := range []*cursor{c, acquire(t, s, "kafka", "next")} {
				if id := e.Mark.(*mark).id; !holder.isQueued(id) {
					t.Error("the job is not known")
				}
			}
		})
	}
}

func TestAFailedEventWithALongIDIsPassed(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	long := foreignDoc(longText(6<<20), time.Now())
	long[4].Value = 5 // no payload
	insert(t, s.log, long)
	appendIDs(t, s, "a")
	c := cursorOf(t, s, core.Start{})
	got := catchUp(t, c)
	if len(got) != 2 || got[1].Err == nil {
		t.Fatalf("read %d events", len(got))
	}
	bad := core.Parked{Entry: got[1], Sink: "events", Failure: core.Failure{Code: core.CodeUndecodable}}
	if err := c.Park(t.Context(), []core.Parked{bad}); err != nil {
		t.Fatal(err)
	}
	setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
	c = nextTerm(t, c)
	for _, e := range catchUp(t, c) {
		if want := e.Err != nil; e.Queued != want {
			t.Errorf("queued is %v, want %v", e.Queued, want)
		}
	}
}

func TestTheCleanerLeavesWhatAJobRefersToByItsHash(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	at, over := longText(maxNotedID-5), longText(maxNotedID-4) // a string has a length and an end
	put(t, s, at, 50*time.Hour)
	put(t, s, over, 50*time.Hour)
	put(t, s, "old", 50*time.Hour)
	caughtUp(t, s, "kafka", 0)
	c := acquire(t, s, "kafka", "me")
	if _, err := c.park(t.Context(), []core.Parked{parked(markAt(t, over, 10, 1), order("x"))}, true); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	wantLeft(t, s, over)
}

func TestIDsOfTheSameBytesAndAnotherTypeHaveAnotherHash(t *testing.T) {
	t.Parallel()
	text := valueOf(t, longText(2*maxNotedID))
	symbol := bson.RawValue{Type: bson.TypeSymbol, Value: text.Value}
	if noteOf(text).Equal(noteOf(symbol)) {
		t.Error("both are the same")
	}
	if !isHashedID(noteOf(text)) || isHashedID(valueOf(t, "short")) || !noteOf(noteOf(text)).Equal(noteOf(text)) {
		t.Error("a hash is not known as one")
	}
}

// JSON can take twelve times the room of the document that it is made of.
func TestTheSizeOfAnEntryIsWhatItKeepsInMemory(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			c := cursorOf(t, s, start)
			nulls := make(bson.A, 0, 10_000)
			for range cap(nulls) {
				nulls = append(nulls, bson.MinKey{})
			}
			for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
				doc := foreignDoc(id, time.Now())
				doc[4].Value = nulls
				insert(t, s.log, doc)
			}
			limit := core.ReadLimit{Bytes: 400_000}
			var got []core.Entry
			for len(got) < 6 {
				b, err := c.Read(t.Context(), limit)
				if err != nil {
					t.Fatal(err)
				}
				sum := 0
				for _, e := range b.Entries {
					sum += e.Size
					if e.Size < len(e.Event.Payload) {
						t.Errorf("the payload has %d bytes, the entry %d", len(e.Event.Payload), e.Size)
					}
				}
				if sum > limit.Bytes || len(b.Entries) > 2 {
					t.Errorf("a read gave %d entries of %d bytes, more than %d", len(b.Entries), sum, limit.Bytes)
				}
				got = append(got, b.Entries...)
			}
			wantIDs(t, got, "a", "b", "c", "d", "e", "f")
		})
	}
}
