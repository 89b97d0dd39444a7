package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// readTime bounds what a test waits for.
const readTime = 60 * time.Second

// cursorOf acquires a cursor that this test alone uses, whoever held it before.
func cursorOf(t testing.TB, s *Store, start core.Start) *cursor {
	t.Helper()
	req := core.AcquireRequest{Name: "route", Owner: "test", Lease: time.Minute, Start: start}
	c, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Release(context.Background()) })
	return c.(*cursor)
}

// nextTerm ends a term as a crash does, and begins another.
func nextTerm(t testing.TB, c *cursor) *cursor {
	t.Helper()
	c.reader.close(context.Background())
	return cursorOf(t, c.store, core.Start{})
}

// saveBatch saves everything that a batch holds.
func saveBatch(t testing.TB, c *cursor, b core.Batch) {
	t.Helper()
	marks := make([]core.Mark, 0, len(b.Entries)+1)
	for _, e := range b.Entries {
		marks = append(marks, e.Mark)
	}
	if b.Reached != nil {
		marks = append(marks, b.Reached)
	}
	if len(marks) == 0 {
		return
	}
	if err := c.Save(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
}

// readOn reads, and settles, until enough says so. Errors are taken for passing
// ones, as a relay does, but counted.
func readOn(t testing.TB, c *cursor, limit core.ReadLimit, enough func(got []core.Entry) bool) (got []core.Entry, failures []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readTime)
	defer cancel()
	for !enough(got) {
		b, err := c.Read(ctx, limit)
		if errors.Is(err, core.ErrFenced) || ctx.Err() != nil {
			t.Fatalf("reading ended with %v after %d entries: %v", err, len(got), idsIn(got))
		}
		if err != nil {
			failures = append(failures, err)
			if len(failures) > 1000 {
				t.Fatalf("reading fails again and again: %v", err)
			}
			continue
		}
		saveBatch(t, c, b)
		got = append(got, b.Entries...)
	}
	return got, failures
}

// readTo reads up to the event with this id, without errors.
func readTo(t testing.TB, c *cursor, id string) []core.Entry {
	t.Helper()
	got, failures := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, id) })
	if len(failures) > 0 {
		t.Fatalf("reading failed: %v", failures)
	}
	return got
}

// catchUp reads and settles until the stream has nothing more.
func catchUp(t testing.TB, c *cursor) []core.Entry {
	t.Helper()
	var got []core.Entry
	for {
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		saveBatch(t, c, b)
		got = append(got, b.Entries...)
		if len(b.Entries) == 0 && !b.SaveSoon {
			return got
		}
	}
}

func holds(got []core.Entry, id string) bool {
	return slices.ContainsFunc(got, func(e core.Entry) bool { return e.Event.ID == id })
}

func idsIn(got []core.Entry) []string {
	ids := make([]string, len(got))
	for i, e := range got {
		ids[i] = e.Event.ID
	}
	return ids
}

// firsts drops repeats.
func firsts(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		twice := seen[id]
		seen[id] = true
		return twice
	})
}

func wantIDs(t testing.TB, got []core.Entry, want ...string) {
	t.Helper()
	if have := idsIn(got); !slices.Equal(have, want) {
		t.Fatalf("read %v, want %v", have, want)
	}
}

// wantRising fails unless each entry lies behind the one before.
func wantRising(t testing.TB, got []core.Entry) {
	t.Helper()
	for i := 1; i < len(got); i++ {
		if a, b := got[i-1].Mark.Position(), got[i].Mark.Position(); a.Compare(b) >= 0 {
			t.Fatalf("entry %d is at %+v, and the one before it at %+v", i, b, a)
		}
	}
}

// numbered returns the ids from, from+1, … below to.
func numbered(from, to int) []string {
	ids := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprintf("e%06d", i))
	}
	return ids
}

// fillLog inserts events without a transaction, many at a time.
func fillLog(t testing.TB, s *Store, size int, ids ...string) {
	t.Helper()
	payload := make([]byte, size)
	for chunk := range slices.Chunk(ids, 1000) {
		docs := make([]any, 0, len(chunk))
		for _, id := range chunk {
			e := order(id)
			e.OccurredAt = time.Now()
			docs = append(docs, s.encodeEvent(&e, payload, "", ""))
		}
		insert(t, s.log, docs...)
	}
}

func insert(t testing.TB, coll *mongo.Collection, docs ...any) {
	t.Helper()
	if _, err := coll.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

// foreignDoc is a document as producers in other languages write it.
func foreignDoc(id any, occurredAt any) bson.D {
	doc := bson.D{
		{Key: "_id", Value: id},
		{Key: "aggregate", Value: "order"},
		{Key: "aggregate_id", Value: "o-1"},
		{Key: "event_type", Value: "order.placed"},
		{Key: "payload", Value: bson.D{{Key: "n", Value: 1}}},
		{Key: "version", Value: 1},
		{Key: "published_at", Value: nil},
		{Key: "attempts", Value: 0},
	}
	if occurredAt != nil {
		doc = append(doc, bson.E{Key: "occurred_at", Value: occurredAt})
	}
	return doc
}

// notQueued and noJobs stand for a cursor without jobs.
func notQueued(bson.RawValue) bool { return false }

func noJobs(context.Context, bson.Timestamp) error { return nil }
