package main

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// foreignEvent is what a program in another language inserts, with changes: a
// field of value nil is left out.
func foreignEvent(id any, changes bson.M) bson.D {
	return document(id, bson.D{
		{Key: "seq", Value: bson.Timestamp{}},
		{Key: "aggregate_id", Value: "order-7"},
		{Key: "event_type", Value: "order.placed"},
		{Key: "payload", Value: bson.D{{Key: "total", Value: 42}}},
	}, changes)
}

func foreignJob(id any, changes bson.M) bson.D {
	return document(id, bson.D{
		{Key: "seq", Value: bson.Timestamp{}},
		{Key: "sink", Value: "mail"},
		{Key: "state", Value: "ready"},
		{Key: "rank", Value: 1},
		{Key: "event_type", Value: "mail.wanted"},
		{Key: "payload", Value: bson.D{{Key: "to", Value: "jo@example.org"}}},
	}, changes)
}

func document(id any, fields bson.D, changes bson.M) bson.D {
	doc := bson.D{{Key: "_id", Value: id}}
	for _, f := range fields {
		if changed, ok := changes[f.Key]; ok {
			f.Value = changed
		}
		if f.Value != nil {
			doc = append(doc, f)
		}
		delete(changes, f.Key)
	}
	for name, value := range changes {
		doc = append(doc, bson.E{Key: name, Value: value})
	}
	return doc
}

// TestLintFindings has one case for each finding.
func TestLintFindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		collection string
		documents  []bson.D
		status     int
	}{
		"event-without-key":     {"outbox", []bson.D{foreignEvent("e-1", bson.M{"aggregate_id": nil}), foreignEvent("e-2", bson.M{"aggregate_id": nil})}, exitFailed},
		"event-without-type":    {"outbox", []bson.D{foreignEvent("e-1", bson.M{"event_type": ""})}, exitFailed},
		"event-without-payload": {"outbox", []bson.D{foreignEvent("e-1", bson.M{"payload": nil})}, exitFailed},
		"event-wrong-type":      {"outbox", []bson.D{foreignEvent("e-1", bson.M{"payload": 7})}, exitFailed},
		"event-wrong-date":      {"outbox", []bson.D{foreignEvent("e-1", bson.M{"occurred_at": "yesterday"})}, exitFailed},
		"event-wrong-header":    {"outbox", []bson.D{foreignEvent("e-1", bson.M{"headers": bson.D{{Key: "a", Value: bson.A{}}}})}, exitFailed},
		"event-sealed":          {"outbox", []bson.D{foreignEvent("e-1", bson.M{"codec": "aes"})}, exitFailed},
		"event-over-limit":      {"outbox", []bson.D{foreignEvent("e-1", bson.M{"tenant": strings.Repeat("x", 300)})}, exitOK},
		"event-without-seq":     {"outbox", []bson.D{foreignEvent("e-1", bson.M{"seq": nil, "occurred_at": bson.NewDateTimeFromTime(time.Now())})}, exitOK},
		"event-mixed-types":     {"outbox", []bson.D{foreignEvent("e-1", nil), foreignEvent("e-2", nil), foreignEvent("e-3", bson.M{"aggregate_id": 7})}, exitOK},
		"job-without-sink":      {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"sink": nil})}, exitFailed},
		"job-without-state":     {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"state": nil})}, exitFailed},
		"job-wrong-state":       {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"state": "pending"})}, exitFailed},
		"job-without-rank":      {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"rank": nil}), foreignJob("j-2", bson.M{"rank": 3}), foreignJob("j-3", bson.M{"rank": "1"})}, exitFailed},
		"job-without-payload":   {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"payload": nil})}, exitFailed},
		"job-wrong-type":        {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"available_at": "2026-01-31", "attempts": "0", "tenant": 7})}, exitFailed},
		"job-without-lease":     {"outbox_jobs", []bson.D{foreignJob("j-1", bson.M{"state": "active"})}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperated(t)
			if _, err := o.db.Collection(c.collection).InsertMany(t.Context(), c.documents); err != nil {
				t.Fatal(err)
			}
			tr := &transcript{o: o}
			if tr.run("lint"); !strings.Contains(tr.text.String(), "("+string(rune('0'+c.status))+")") {
				t.Errorf("want status %d", c.status)
			}
			tr.golden("lint-" + name + ".txt")
		})
	}
}

// What this program writes, and what the layout calls enough, is in order.
func TestLintOfWhatIsAsDocumented(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.append(order("e-1", "order-7"), order("e-2", "order-8"))
	c := o.acquire()
	entries := o.read(c, 2)
	if err := c.Park(t.Context(), []core.Parked{{Entry: entries[0], Sink: "events", Failure: rejected.Failure}}); err != nil {
		t.Fatal(err)
	}
	delayed := mail("b")
	delayed.NotBefore = time.Now().Add(time.Hour)
	o.enqueue(mail("a"), delayed)
	o.claim()
	if err := o.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.db.Collection("outbox_jobs").InsertOne(t.Context(), foreignJob("j-1", nil)); err != nil {
		t.Fatal(err)
	}
	tr := &transcript{o: o}
	tr.run("lint")
	tr.run("lint", "--limit", "1")
	tr.run("lint", "--sample", "2", "--json")
	tr.run("lint", "--limit", "-1")
	tr.golden("lint.txt")
}

// The shape that most tutorials show is delivered as it is.
func TestLintOfTheTutorialShape(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	if _, err := o.db.Collection("outbox").InsertOne(t.Context(), tutorialShape()); err != nil {
		t.Fatal(err)
	}
	var report lintReport
	if o.script(&report, "lint", "--limit", "0"); !report.OK || report.Events != 1 || len(report.Findings) != 0 {
		t.Errorf("%+v", report)
	}
}

func tutorialShape() bson.D {
	return bson.D{
		{Key: "aggregate", Value: "order"},
		{Key: "aggregate_id", Value: "order-7"},
		{Key: "event_type", Value: "order.placed"},
		{Key: "payload", Value: bson.D{{Key: "total", Value: 42}}},
		{Key: "version", Value: 1},
		{Key: "occurred_at", Value: bson.NewDateTimeFromTime(time.Now())},
		{Key: "published_at", Value: nil},
		{Key: "attempts", Value: 0},
	}
}

func TestIndexesWithValidators(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	config := relayConfigFile(t, servicetest.MongoURL(t), o.db.Name(), "127.0.0.1:9092", "t")
	status, stdout, stderr := outbox(t, "indexes", "--validator", "--dry-run", "-c", config)
	if want := "would set the validator of " + o.db.Name() + ".outbox_jobs\n"; status != exitOK || !strings.Contains(stdout, want) {
		t.Errorf("dry run: %d, %s%s", status, stdout, stderr)
	}
	if _, err := o.db.Collection("outbox").InsertOne(t.Context(), foreignEvent("e-1", bson.M{"aggregate_id": nil})); err != nil {
		t.Errorf("a dry run set a validator: %v", err)
	}
	for range 2 {
		if status, stdout, stderr := outbox(t, "indexes", "--validator", "-c", config); status != exitOK {
			t.Errorf("%d, %s%s", status, stdout, stderr)
		}
	}
	if _, err := o.db.Collection("outbox").InsertOne(t.Context(), foreignEvent("e-2", bson.M{"aggregate_id": nil})); err == nil {
		t.Error("an event without a key was taken")
	}
	if _, err := o.db.Collection("outbox_jobs").InsertOne(t.Context(), foreignJob("j-1", bson.M{"rank": "1"})); err == nil {
		t.Error("a job that no worker takes was taken")
	}
	if _, err := o.db.Collection("outbox").InsertOne(t.Context(), tutorialShape()); err != nil {
		t.Error(err)
	}
}
