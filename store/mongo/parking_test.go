package mongo

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// ofKey is an event of a key of its own.
func ofKey(id, key string) core.Event {
	e := order(id)
	e.AggregateID = key
	return e
}

// readUnsaved reads up to the event with this id, and settles nothing.
func readUnsaved(t *testing.T, c *cursor, id string) []core.Entry {
	t.Helper()
	var got []core.Entry
	for !holds(got, id) {
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Entries...)
	}
	return got
}

func wantQueued(t *testing.T, entries []core.Entry, want map[string]bool) {
	t.Helper()
	for _, e := range entries {
		if e.Queued != want[e.Event.ID] {
			t.Errorf("%s at %v: queued is %t", e.Event.ID, e.Mark.Position(), e.Queued)
		}
	}
}

// An event that another key held back is read again by the next holder: it was
// settled before the later one of its key was parked.
func TestWhatWasSettledBeforeAParkedEventIsQueued(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	appendNow(t, s, ofKey("slow", "s"))
	appendNow(t, s, ofKey("a", "k"))
	appendNow(t, s, ofKey("b", "k"))
	appendNow(t, s, ofKey("other", "o"))
	appendNow(t, s, ofKey("c", "k"))
	for _, e := range readUnsaved(t, c, "c") {
		if e.Event.ID == "b" {
			parkAll(t, c, core.Parked{Entry: e, Sink: "events", State: core.JobReady})
		}
	}
	next := acquire(t, s, c.doc.Name, c.doc.Owner)
	wantQueued(t, readUnsaved(t, next, "c"), map[string]bool{"a": true, "b": true})
}

// A scan's positions are later than the commits of what it reads. What it parked
// must not hide what the stream gives to the next holder: nobody has sent that.
func TestAJobThatAScanParkedHidesNothingOfTheStream(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	first := cursorOf(t, s, core.Start{Now: true})
	appendNow(t, s, ofKey("a", "k"))
	appendNow(t, s, ofKey("b", "k"))
	// The place in the stream is lost for a while: a holder scans, comes as far as
	// the first event, parks it, and dies.
	scanning := acquire(t, s, first.doc.Name, first.doc.Owner)
	scanning.reader.beginScan(t.Context(), scanState{}, errReplaced)
	batch, err := scanning.Read(t.Context(), core.ReadLimit{Events: 1})
	if err != nil || len(batch.Entries) != 1 || batch.Entries[0].Event.ID != "a" {
		t.Fatalf("read %+v, %v", batch.Entries, err)
	}
	parkAll(t, scanning, core.Parked{Entry: batch.Entries[0], Sink: "events", State: core.JobReady})

	next := acquire(t, s, first.doc.Name, first.doc.Owner)
	got := readUnsaved(t, next, "b")
	if at := batch.Entries[0].Mark.Position(); got[len(got)-1].Mark.Position().Compare(at) >= 0 {
		t.Fatalf("the stream gives b at %v, not before %v: the test shows nothing", got[len(got)-1].Mark.Position(), at)
	}
	wantQueued(t, got, map[string]bool{"a": true})
}

// Nor does what a stream parked hide what a scan reads: its positions are new.
func TestAJobThatTheStreamParkedHidesNothingOfAScan(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	appendNow(t, s, ofKey("a", "k"))
	appendNow(t, s, ofKey("b", "k"))
	entries := readUnsaved(t, c, "b")
	parkAll(t, c, core.Parked{Entry: entries[1], Sink: "events", State: core.JobReady})
	if err := loseToken(t.Context(), suiteStore{Store: s}, c.doc.Name); err != nil {
		t.Fatal(err)
	}
	setCursor(t, s, c.doc.Name, bson.D{{Key: "scan", Value: scanState{}}})
	next := acquire(t, s, c.doc.Name, c.doc.Owner)
	wantQueued(t, readUnsaved(t, next, "b"), map[string]bool{"b": true})
}

// Events of one transaction have one commit time, and running numbers that may
// differ when they are read again.
func TestEventsOfOneTransactionHideNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	appendNow(t, s, ofKey("a", "k"), ofKey("b", "k"))
	entries := readUnsaved(t, c, "b")
	parkAll(t, c, core.Parked{Entry: entries[1], Sink: "events", State: core.JobReady})
	next := acquire(t, s, c.doc.Name, c.doc.Owner)
	wantQueued(t, readUnsaved(t, next, "b"), map[string]bool{"b": true})
}

func TestAPolledLogHidesNothingButItsJobs(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{AllowNoTransaction: true, ReadWait: 200 * time.Millisecond})
	c := cursorOf(t, s, core.Start{})
	appendNow(t, s, ofKey("a", "k"))
	appendNow(t, s, ofKey("b", "k"))
	entries := readUnsaved(t, c, "b")
	parkAll(t, c, core.Parked{Entry: entries[1], Sink: "events", State: core.JobReady})
	next := acquire(t, s, c.doc.Name, c.doc.Owner)
	wantQueued(t, readUnsaved(t, next, "b"), map[string]bool{"b": true})
}

// A person's act on a job of a cursor tells its sink, so that the right holder
// looks.
func TestABellNamesTheSink(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{ReadWait: 200 * time.Millisecond})
	c := acquire(t, s, "kafka", "me")
	wakes := make(chan core.Wake, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = s.Watch(ctx, func(w core.Wake) { wakes <- w }) }()
	<-wakes // it has begun
	ring := func(what string, do func() (int64, error)) {
		t.Helper()
		if n, err := do(); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", what, n, err)
		}
		if w := <-wakes; w.Sink != "events" {
			t.Errorf("%s woke %q", what, w.Sink)
		}
	}
	filter := core.JobFilter{Cursor: "kafka"}
	parkAll(t, c, parked(markAt(t, "a", 10, 1), order("a")), waiting(markAt(t, "b", 10, 2), order("b")))
	for range 2 {
		ring("a retry", func() (int64, error) { return s.Retry(t.Context(), filter, operator) })
		settleAll(t, s, core.Settlement{Kind: core.Fail}, claimOpen(t, c, openJobs(t, c, "a", "b")[:1], 1)...)
	}
	ring("a discard", func() (int64, error) {
		return s.Discard(t.Context(), core.JobFilter{IDs: []string{"kafka/a"}}, operator)
	})
	select {
	case w := <-wakes:
		t.Errorf("parking, a claim or a failure woke %q", w.Sink)
	default:
	}
}
