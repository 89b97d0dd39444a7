package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// waiting is an event that is parked to be delivered.
func waiting(m *mark, e core.Event) core.Parked {
	return core.Parked{Entry: core.Entry{Event: e, Mark: m}, Sink: "events", State: core.JobReady}
}

func parkAll(t testing.TB, c *cursor, entries ...core.Parked) []core.Parked {
	t.Helper()
	if err := c.Park(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

func openJobs(t testing.TB, c *cursor, want ...string) []core.OpenJob {
	t.Helper()
	jobs, err := c.OpenJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range jobs {
		got = append(got, o.EventID)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("open are %v, want %v", got, want)
	}
	return jobs
}

func claimOpen(t testing.TB, c *cursor, jobs []core.OpenJob, want int) []*core.Claimed {
	t.Helper()
	claimed, err := c.ClaimJobs(t.Context(), jobs, time.Minute)
	if err != nil || len(claimed) != want {
		t.Fatalf("claimed %d, %v; want %d", len(claimed), err, want)
	}
	return claimed
}

func TestParkTellsWhatOpenJobsTells(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		parked := parkAll(t, c, waiting(markAt(t, "b", 10, 2), order("b")), waiting(markAt(t, "a", 10, 1), order("a")))
		open := openJobs(t, c, "a", "b")
		for i, o := range open {
			if p := parked[1-i]; p.ID != o.ID || !p.Ref.(bson.RawValue).Equal(o.Ref.(bson.RawValue)) {
				t.Errorf("Park told %s, %v; OpenJobs %s, %v", p.ID, p.Ref, o.ID, o.Ref)
			}
		}
		again := parkAll(t, c, waiting(markAt(t, "a", 10, 1), order("a")))
		if again[0].ID != open[0].ID || again[0].Ref == nil {
			t.Errorf("parked again it is told as %q, %v", again[0].ID, again[0].Ref)
		}
	})
}

// What is open must be found among any number of jobs that are done.
func TestOpenJobsReadsOpenJobsAlone(t *testing.T) {
	t.Parallel()
	const done = 100_000
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	var jobs []any
	for i := range done {
		state := core.JobCompleted
		if i%10 == 0 {
			state = core.JobFailed
		}
		jobs = append(jobs, bson.D{
			{Key: "_id", Value: jobID{Log: "outbox", Cursor: "kafka", Event: valueOf(t, fmt.Sprint("done-", i))}},
			{Key: "sink", Value: "events"},
			{Key: "state", Value: state},
			{Key: "cursor", Value: "kafka"},
			{Key: "position", Value: storedPosition{Time: bson.Timestamp{T: uint32(i)}}},
		})
	}
	if _, err := s.jobs.InsertMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	parkAll(t, c, waiting(markAt(t, "a", 10, 1), order("a")), waiting(markAt(t, "b", 2*done, 1), order("b")))
	claimOpen(t, c, openJobs(t, c, "a", "b")[:1], 1)
	openJobs(t, c, "a", "b")
	keys, docs, plan := scanned(t, s, bson.D{
		{Key: "find", Value: "outbox_jobs"},
		{Key: "filter", Value: bson.D{{Key: "cursor", Value: "kafka"}, {Key: "open", Value: true}}},
		{Key: "hint", Value: openIndex},
	})
	if keys > 3 || docs > 2 {
		t.Errorf("examined %d keys and %d documents for 2 open jobs: %s", keys, docs, plan)
	}
	// And what a new holder must know, among any number that are far behind.
	keys, docs, plan = scanned(t, s, bson.D{{Key: "find", Value: "outbox_jobs"}, {Key: "filter", Value: bson.D{
		{Key: "cursor", Value: "kafka"}, {Key: "position.time", Value: op("$gte", bson.Timestamp{T: done - 10})},
	}}})
	if keys > 20 || docs > 11 {
		t.Errorf("examined %d keys and %d documents for 11 jobs: %s", keys, docs, plan)
	}
}

func TestOpenJobsGoOnWithoutTheirIndex(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	parkAll(t, c, waiting(markAt(t, "a", 10, 1), order("a")))
	if err := s.jobs.Indexes().DropOne(t.Context(), "outbox_open"); err != nil {
		t.Fatal(err)
	}
	openJobs(t, c, "a")
}

// A claim counts only when the majority has it.
func TestAClaimOfOpenJobsThatIsNotReplicatedIsUndone(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	c := acquire(t, s, "kafka", "me")
	parkAll(t, c, waiting(markAt(t, "a", 10, 1), order("a")), waiting(markAt(t, "b", 10, 2), order("b")))
	open := openJobs(t, c, "a", "b")
	for what, fault := range map[string]struct {
		command string
		data    bson.E
	}{
		"not replicated": {"update", notReplicated()},
		"no answer":      {"update", bson.E{Key: "closeConnection", Value: true}},
		"not read":       {"find", bson.E{Key: "errorCode", Value: 8000}},
	} {
		failNext(t, db, fault.command, fault.data)
		claimed, err := c.ClaimJobs(t.Context(), open, time.Minute)
		if len(claimed) > 0 || err == nil {
			t.Fatalf("%s: claimed %d, %v", what, len(claimed), err)
		}
		for _, o := range openJobs(t, c, "a", "b") {
			if o.State != core.JobReady {
				t.Errorf("%s: %s is %s", what, o.ID, o.State)
			}
		}
	}
	claimOpen(t, c, open, 2)
}

func TestAReferenceIsDeliveredFromTheLog(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	object := bson.NewObjectID()
	long := longText(2 * maxNotedID)
	whole := bson.D{{Key: "aggregate_id", Value: "o-1"}, {Key: "event_type", Value: "order.placed"}, {Key: "payload", Value: "whole"}}
	for _, id := range []any{object, long, "bad"} {
		doc := append(bson.D{{Key: "_id", Value: id}}, whole...)
		if id == "bad" {
			doc = doc[:3]
		}
		if _, err := s.log.InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	c := acquire(t, s, "kafka", "me")
	var entries []core.Parked
	for i, id := range []any{object, long, "bad", "gone"} {
		entries = append(entries, waiting(markAt(t, id, 10, uint64(i)), order(fmt.Sprint("e-", i))))
	}
	if _, err := c.park(t.Context(), entries, true); err != nil {
		t.Fatal(err)
	}
	claimed := claimOpen(t, c, openJobs(t, c, "e-0", "e-1", "e-2", "e-3"), 4)
	for i, want := range []string{object.Hex(), long} {
		if got := claimed[i]; got.Err != nil || got.Lease.Event.ID != want || string(got.Lease.Event.Payload) != "whole" {
			t.Errorf("lent %.30s with %q, %v", got.Lease.Event.ID, got.Lease.Event.Payload, got.Err)
		}
	}
	for _, got := range claimed[2:] {
		if core.ResultOf("", got.Err).Outcome != core.Rejected {
			t.Errorf("%s: %v", got.ID, got.Err)
		}
	}
	if !errors.Is(claimed[3].Err, errReferredGone) {
		t.Errorf("%v", claimed[3].Err)
	}
}

// Jobs of two keys whose beginnings are the same must not be one key.
func TestAKeyThatWasCutIsToldWhole(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	var entries []core.Parked
	keys := map[string]string{"a": strings.Repeat("é", core.MaxKeyBytes), "b": strings.Repeat("é", core.MaxKeyBytes) + "b", "c": "short"}
	for i, id := range []string{"a", "b", "c", "gone"} {
		e := order(id)
		e.AggregateID = keys[id]
		if id != "gone" {
			if _, err := s.log.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "aggregate_id", Value: e.AggregateID}}); err != nil {
				t.Fatal(err)
			}
		}
		entries = append(entries, waiting(&mark{pos: core.Position{Time: uint64(i)}, id: valueOf(t, id), committed: true}, e))
	}
	entries[3].Entry.Event.AggregateID = keys["a"]
	jobs, err := c.park(t.Context(), entries, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range openJobs(t, c, "a", "b", "c", "gone") {
		if want, known := keys[o.EventID]; known && o.Key != want {
			t.Errorf("%s has a key of %d bytes, want %d", o.EventID, len(o.Key), len(want))
		}
		if ordered, _ := jobs[i].Lookup("ordered").BooleanOK(); ordered != (o.EventID == "c") {
			t.Errorf("%s: ordered is %t", o.EventID, ordered)
		}
	}
}

// The jobs of a park are there in order wherever it is cut short.
func TestAParkOnAStandaloneIsInOrder(t *testing.T) {
	t.Parallel()
	hook := &commandHook{}
	s := newStore(t, servicetest.StandaloneDatabase(t, hook.options()), Config{AllowNoTransaction: true})
	c := acquire(t, s, "kafka", "me")
	entries := []core.Parked{
		waiting(markAt(t, "c", 10, 3), order("c")), waiting(markAt(t, "a", 10, 1), order("a")), waiting(markAt(t, "b", 10, 2), order("b")),
	}
	// A holder that was replaced parks one of them at the same time.
	stale := newCursor(s, core.AcquireRequest{Lease: time.Minute}, c.doc, time.Now(), 0, true)
	hook.before("insert", func() {
		job, err := stale.job(context.Background(), &core.Parked{Entry: entries[2].Entry, Sink: "events", State: core.JobReady}, time.Now(), false)
		if err == nil {
			_, err = s.jobs.InsertOne(context.Background(), job)
		}
		if err != nil {
			t.Error(err)
		}
	})
	parkAll(t, c, entries...)
	openJobs(t, c, "a", "b", "c")
	var order []string
	for _, job := range jobsOf(t, s) {
		order = append(order, job.Lookup("event_id").StringValue())
	}
	if got := strings.Join(order, " "); got != "b a c" {
		t.Errorf("written in the order %s", got)
	}
}
