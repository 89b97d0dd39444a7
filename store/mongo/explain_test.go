package mongo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// causeText writes the causes of a job or event, without what a clock says.
func causeText(t *testing.T, s *Store, what, id string) string {
	t.Helper()
	e, err := s.Explain(t.Context(), id)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	text := fmt.Sprintf("%s: %s is %s\n", what, id, e.State)
	for _, c := range e.Causes {
		until := ""
		if !c.Until.IsZero() {
			until = " until <time>"
		}
		text += fmt.Sprintf("  %s%s: %s\n", c.Code, until, clockPattern.ReplaceAllString(c.Text, "<time>"))
	}
	return text
}

var clockPattern = regexp.MustCompile(`2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)

// One case for each cause that core names.
func TestEveryCauseIsToldInASentence(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	var text strings.Builder
	tell := func(what, id string) { text.WriteString(causeText(t, s, what, id)) }

	appendNow(t, s, order("e-1"))
	tell("no cursor has run", "e-1")
	c := acquire(t, s, "kafka", "host-1")
	setCursor(t, s, "kafka", bson.D{{Key: "scan", Value: scanState{}}})
	tell("behind", "e-1")

	p := []core.Parked{
		waiting(markAt(t, "p-1", 10, 1), order("p-1")), waiting(markAt(t, "p-2", 10, 2), order("p-2")),
		waiting(markAt(t, "p-3", 10, 3), ofKey("p-3", "o-2")),
	}
	p[0].Delay, p[0].Attempts, p[0].Failure = time.Hour, 2, core.Failure{Code: core.CodeRefused, Reason: "leader not available"}
	parkAll(t, c, p...)
	tell("backoff", "p-1")
	tell("predecessor that is delayed", "p-2")
	tell("due to the holder", "p-3")
	claimed := claimOpen(t, c, openJobs(t, c, "p-1", "p-2", "p-3")[:1], 1)
	tell("leased", "p-1")
	tell("predecessor that is leased", "p-2")
	settleAll(t, s, core.Settlement{Kind: core.Fail, Failure: core.Failure{Code: core.CodeRejected, Reason: "too large"}, Holds: true}, claimed...)
	tell("failed and holds", "p-1")
	tell("predecessor that holds", "p-2")
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell("cursor stopped", "p-3")
	if n, err := s.Discard(t.Context(), core.JobFilter{IDs: []string{"kafka/p-1"}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	tell("discarded", "p-1")

	m := mail("m")
	m.ID, m.NotBefore = "m-1", time.Now().Add(time.Hour)
	id := enqueue(t, s, m)[0].ID
	tell("delayed", "m-1")
	setJob(t, s, id, bson.D{{Key: "available_at", Value: bson.DateTime(0)}, {Key: "not_before", Value: bson.DateTime(0)}})
	tell("due", "m-1")
	pause := core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}, For: time.Hour, By: "jo", Reason: "maintenance"}
	if err := s.Pause(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	tell("paused", "m-1")
	mailed := claim(t, s, 1)
	settleAll(t, s, core.Settlement{Kind: core.EndUnknown, Failure: core.Failure{Code: core.CodeUnknown, Reason: "connection lost"}}, mailed...)
	tell("unknown", "m-1")
	if n, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{id}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "ses 17"}, claim(t, s, 1)...)
	tell("delivered", "m-1")

	got := strings.NewReplacer(id, "<id>").Replace(text.String())
	got = regexp.MustCompile(`the oldest \S+ old`).ReplaceAllString(got, "the oldest <age> old")
	got = regexp.MustCompile(`since 1970-01-01 00:00:00 UTC`).ReplaceAllString(got, "since <time>")
	path := filepath.Join("testdata", "causes.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, code := range []string{
		core.CauseDelivered, core.CausePredecessor, core.CausePaused, core.CauseLeased, core.CauseBackoff, core.CauseDelayed,
		core.CauseFailed, core.CauseUnknown, core.CauseCursorStopped, core.CauseBehind, core.CauseDue, core.CauseDiscarded,
	} {
		if !strings.Contains(got, "\n  "+code) {
			t.Errorf("no case for the cause %s", code)
		}
	}
}

func TestAnEventBehindAPausedSinkIsToldSo(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	appendNow(t, s, order("e-1"))
	for _, sink := range []string{"old", "events"} { // the last holder's counts
		if _, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "host-1", Sink: sink}); err != nil {
			t.Fatal(err)
		}
	}
	setCursor(t, s, "kafka", bson.D{{Key: "scan", Value: scanState{}}})
	target := core.PauseTarget{Scope: core.PauseSink, Name: "events"}
	for _, p := range []core.PauseTarget{target, {Scope: core.PauseSink, Name: "old"}, {Scope: core.PauseTenant, Name: "events"}} {
		if err := s.PauseBy(t.Context(), core.Pause{PauseTarget: p, Reason: "maintenance"}, operator); err != nil {
			t.Fatal(err)
		}
	}
	got := causeText(t, s, "paused", "e-1")
	want := "paused: e-1 is waiting\n  paused: cursor \"kafka\" waits: sink \"events\" is paused until somebody resumes it by " +
		operator.By + ": maintenance\n  behind: "
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 3 {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := s.ResumeBy(t.Context(), target, operator); err != nil {
		t.Fatal(err)
	}
	if got := causeText(t, s, "resumed", "e-1"); strings.Contains(got, "paused") {
		t.Errorf("got %s", got)
	}
}
