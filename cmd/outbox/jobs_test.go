package main

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

var rejected = core.Settlement{Kind: core.Fail, Failure: core.Failure{
	Code: core.CodeRejected, Reason: "550 no such mailbox\nat \x1b[31mexample.org, and the rest of a long answer that nobody reads",
}}

func TestFailedJobsArePrintedByPage(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	other := mail("c")
	other.Tenant, other.Type = "umbrella", "invoice.wanted"
	o.enqueue(mail("a"), mail("b"), other)
	o.settle(rejected)
	o.enqueue(mail("d"))

	tr := &transcript{o: o}
	tr.run("failed", "--limit", "2")
	tr.run("failed", "--tenant", "umbrella")
	tr.run("failed", "--type", "mail.wanted", "--older-than", "1d")
	tr.run("failed", "--state", "ready")
	tr.run("failed", "--tenant", "umbrella", "--json")
	tr.run("failed", "--state", "waiting")
	tr.run("failed", "--limit", "0")
	tr.golden("failed.txt")

	var first, second jobsJSON
	o.script(&first, "failed", "--limit", "2")
	o.script(&second, "failed", "--limit", "2", "--after", first.Next)
	if len(first.Jobs) != 2 || len(second.Jobs) != 1 || second.Jobs[0].EventID != "c" || second.Next != "" {
		t.Errorf("pages %+v and %+v", first, second)
	}
}

func TestOneJob(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	job := mail("a")
	job.Priority, job.CorrelationID, job.DedupKey = core.High, "checkout-7", "welcome"
	ids := o.enqueue(job)
	o.settle(rejected)
	tr := &transcript{o: o}
	tr.run("get", ids[0])
	tr.run("get", ids[0], "--json")
	tr.run("get", "a")
	tr.run("get", "nobody")
	tr.run("get")
	tr.golden("get.txt")
}

func TestRetryAndDiscard(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	other := mail("c")
	other.Tenant = "umbrella"
	ids := o.enqueue(mail("a"), mail("b"), other)
	o.settle(rejected)
	jo := []string{"--by", "jo", "--reason", "the mailbox is there again"}

	tr := &transcript{o: o}
	tr.run("retry")
	tr.run("retry", "--all")
	tr.run("retry", "--all", "--sink", "mail", "--yes")
	tr.run("retry", "--all", "--dry-run")
	tr.run("retry", "--tenant", "nobody")
	tr.run("retry", "--state", "active", "--sink", "mail")
	tr.run("discard", "--state", "active", "--sink", "mail")
	tr.run(append([]string{"retry", ids[0], "no-such-id"}, jo...)...)
	tr.run(append([]string{"retry", "--tenant", "acme", "--spread", "10m", "--json"}, jo...)...)
	tr.run(append([]string{"retry", "--all", "--yes"}, jo...)...)
	tr.run("discard", "--all", "--dry-run")
	tr.run("discard", "--state", "ready", "--tenant", "umbrella", "--by", "jo")
	tr.run(append([]string{"discard", ids[0]}, jo...)...)
	tr.run("acts")
	tr.run("acts", "--limit", "1", "--json")
	tr.run("acts", "--limit", "0")
	tr.golden("redrive.txt")

	var stats statsJSON
	o.script(&stats, "stats")
	if stats.Ready != 1 || stats.Failed != 0 || stats.Completed != 0 {
		t.Errorf("%+v", stats)
	}
}

// Whoever is logged in is on record where nobody is named.
func TestActsAreThoseOfTheUser(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.enqueue(mail("a"))
	o.settle(rejected)
	var done actJSON
	if o.script(&done, "retry", "--sink", "mail"); done.Count != 1 || done.DryRun {
		t.Errorf("%+v", done)
	}
	acts, err := o.Acts(t.Context(), 10)
	if err != nil || len(acts) != 1 || acts[0].By == "" || acts[0].By != loggedIn() {
		t.Errorf("%+v, %v", acts, err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	tr := &transcript{o: o}
	tr.run("pause", "mail")
	tr.run("pause", "queue", "mail")
	tr.run("pause", "sink", "mail", "--for", "soon")
	tr.run("pause", "sink", "mail", "--by", "jo", "--dry-run")
	tr.run("pause", "sink", "mail", "--by", "jo", "--for", "1h", "--reason", "the provider asked for it")
	tr.run("pause", "tenant", "acme", "--by", "jo", "--json")
	tr.run("stats")
	tr.run("resume", "sink", "mail", "--by", "jo", "--reason", "all is well")
	tr.run("resume", "sink", "mail", "--by", "jo")
	tr.run("resume", "tenant", "acme", "--by", "jo", "--json")
	tr.run("acts")
	tr.golden("pause.txt")
}

// The id of an event stands for its job where only one can be meant.
func TestJobsAreFoundByTheIDsOfTheirEvents(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.append(order("e-1", "order-1"), order("e-2", "order-2"))
	for _, name := range []string{"kafka", "amqp"} {
		c, err := o.Acquire(t.Context(), core.AcquireRequest{Name: name, Owner: "host-1/relay", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range o.read(c, 2) {
			if name == "amqp" && entry.Event.ID == "e-1" {
				continue
			}
			if err := c.Park(t.Context(), []core.Parked{{Entry: entry, Sink: "events", Failure: rejected.Failure}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var job jobJSON
	if o.script(&job, "get", "e-1"); job.ID != "kafka/e-1" {
		t.Errorf("e-1 is %+v", job)
	}
	for _, command := range []string{"get", "retry", "discard"} {
		status, _, stderr := outbox(t, command, "e-2", "-c", o.config)
		if status != exitFailed || !strings.Contains(stderr, "kafka/e-2") || !strings.Contains(stderr, "amqp/e-2") {
			t.Errorf("%s: status %d, %s", command, status, stderr)
		}
	}
	var done actJSON
	if o.script(&done, "retry", "e-1"); done.Count != 1 {
		t.Errorf("retry of e-1: %+v", done)
	}
	if o.script(&done, "discard", "amqp/e-2", "e-1"); done.Count != 2 {
		t.Errorf("discard: %+v", done)
	}
}

// A misspelt database is not an empty outbox, and isn't made one.
func TestCommandsSayThatThereIsNoOutbox(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	config := relayConfigFile(t, servicetest.MongoURL(t), db.Name(), "127.0.0.1:1", "t")
	for _, args := range [][]string{
		{"stats"},
		{"lint"},
		{"acts"},
		{"failed"},
		{"get", "a"},
		{"explain", "a"},
		{"pause", "sink", "mail", "--by", "jo"},
		{"resume", "sink", "mail", "--by", "jo"},
		{"retry", "a", "--by", "jo"},
		{"forget-cursor", "kafka", "--by", "jo"},
	} {
		status, stdout, stderr := outbox(t, append(args, "-c", config)...)
		if status != exitFailed || stdout != "" || !strings.Contains(stderr, "no outbox here") || !strings.Contains(stderr, "outbox indexes") {
			t.Errorf("%s: status %d, %s%s", args, status, stdout, stderr)
		}
	}
	if names, err := db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) != 0 {
		t.Errorf("collections were made: %q (%v)", names, err)
	}
}

func TestForgetCursor(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.append(core.Event{ID: "e-1", AggregateID: "order-1", Type: "order.placed"})
	tr := &transcript{o: o}
	tr.run("forget-cursor", "kafka", "--by", "jo")
	c := o.acquire()
	entries := o.read(c, 1)
	if err := c.Park(t.Context(), []core.Parked{{Entry: entries[0], Sink: "events", Failure: rejected.Failure}}); err != nil {
		t.Fatal(err)
	}
	tr.run("forget-cursor", "kafka", "--by", "jo")
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.run("forget-cursor", "kafak", "--by", "jo")
	o.append(order("e-2", "order-2"))
	tr.run("forget-cursor", "kafka", "--by", "jo")
	tr.run("forget-cursor", "kafka", "--by", "jo", "--dry-run")
	tr.run("forget-cursor", "kafka", "--by", "jo", "--dry-run", "--json")
	tr.run("forget-cursor", "kafka", "--by", "jo", "--reason", "its route is gone", "--yes")
	tr.run("forget-cursor", "kafka", "--by", "jo")
	tr.run("acts")
	tr.golden("forget-cursor.txt")
}

func TestStatsForPeopleAndScripts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	stats := core.Stats{
		At: at, Ready: 12, Delayed: 3, Active: 5, Completed: 1200, Failed: 2, Unknown: 1, OldestReady: 90 * time.Second,
		Sinks: []core.SinkStats{
			{Sink: "events", Failed: 1},
			{Sink: "mail", Ready: 12, Delayed: 3, Active: 5, Failed: 1, Unknown: 1, OldestReady: 90 * time.Second},
		},
		Pauses: []core.Pause{
			{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}, Until: at.Add(time.Hour), Reason: "throttled"},
			{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}, By: "jo", Reason: "unpaid"},
		},
		Cursors: []core.CursorInfo{
			{Name: "kafka", Owner: "host-1/4711", Held: true, Fence: 1 << 32, PlaceAge: 3 * time.Second, Settled: 7, Parked: 2, Failed: 1},
			{Name: "old", Owner: "host-2/17", Lag: core.Lag{Events: 1, Age: 30 * time.Hour}, LagBytes: 5 << 20, PlaceAge: 31 * time.Hour, Scanning: true},
			{Name: "new"},
		},
		LogWindow: 36*time.Hour + 30*time.Minute,
	}
	for name, asJSON := range map[string]bool{"stats.txt": false, "stats.json": true} {
		var b page
		if err := (output{&b, asJSON}).print(statsObject(stats), func(p *page) { statsPage(p, stats) }); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

func TestStatsOfAStore(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	later := mail("b")
	later.NotBefore = time.Now().Add(time.Hour)
	o.enqueue(mail("a"))
	o.settle(rejected)
	o.enqueue(mail("c"), later)
	o.append(core.Event{AggregateID: "order-1", Type: "order.placed", Payload: []byte("{}")})
	o.acquire()
	if err := o.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}}); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	o.script(&keys, "stats")
	for key, want := range map[string]any{"ready": 1., "delayed": 1., "active": 0., "completed": 0., "failed": 1., "unknown": 0.} {
		if keys[key] != want {
			t.Errorf("%s is %v, want %v", key, keys[key], want)
		}
	}
	if age, ok := keys["oldest_ready_seconds"].(float64); !ok || age < 0 || age > 60 {
		t.Errorf("oldest_ready_seconds is %v", keys["oldest_ready_seconds"])
	}
	if pauses, cursors := keys["pauses"].([]any), keys["cursors"].([]any); len(pauses) != 1 || len(cursors) != 1 ||
		cursors[0].(map[string]any)["lag_events"] != 1. || cursors[0].(map[string]any)["held"] != true {
		t.Errorf("pauses %v, cursors %v", pauses, cursors)
	}
	status, _, stderr := outbox(t, "stats", "--timeout", "1ns", "-c", o.config)
	if status != exitFailed || !strings.Contains(stderr, "no answer within 1ns") || !strings.Contains(stderr, "--timeout") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
