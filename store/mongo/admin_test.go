package mongo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

var operator = core.Act{By: "jo", Reason: "the destination is well again"}

// wantCauses fails unless the causes have these codes, and each text holds what
// is wanted of it.
func wantCauses(t *testing.T, s *Store, id, state string, want ...[2]string) {
	t.Helper()
	e, err := s.Explain(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if e.State != state || len(e.Causes) != len(want) {
		t.Fatalf("%s is %s, causes %+v; want %s and %v", id, e.State, e.Causes, state, want)
	}
	for i, c := range e.Causes {
		if c.Code != want[i][0] || !strings.Contains(c.Text, want[i][1]) {
			t.Errorf("cause %d of %s is %s: %q; want %s: %q", i, id, c.Code, c.Text, want[i][0], want[i][1])
		}
	}
}

func TestWhyAJobHasNotGoneOut(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	if _, err := s.Explain(t.Context(), "nothing"); !errors.Is(err, core.ErrNoJob) {
		t.Errorf("an id that is nobody's: %v", err)
	}
	j := mail("a")
	j.ID, j.Tenant, j.NotBefore = "event-1", "acme", time.Now().Add(time.Hour)
	id := enqueue(t, s, j)[0].ID
	wantCauses(t, s, "event-1", "ready", [2]string{core.CauseDelayed, "not due before"})
	if n, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{id}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	wantCauses(t, s, id, "ready", [2]string{core.CauseDue, `sink "mail"`})
	for _, p := range []core.Pause{
		{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}, For: time.Hour, Reason: "throttled"},
		{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}, By: "jo", Reason: "unpaid"},
		{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "other"}, By: "jo"},
	} {
		if err := s.Pause(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	wantCauses(t, s, id, "ready",
		[2]string{core.CausePaused, `sink "mail" is paused until 2`}, [2]string{core.CausePaused, `until somebody resumes it by jo: unpaid`})
	for _, target := range []core.PauseTarget{{Scope: core.PauseSink, Name: "mail"}, {Scope: core.PauseTenant, Name: "acme"}} {
		if err := s.Resume(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	claimed := claimAs(t, s, core.ClaimRequest{Max: 1, Owner: "host-1"})
	wantCauses(t, s, id, "active", [2]string{core.CauseLeased, "leased by host-1 until 2"})
	endLease(t, s, time.Second, claimed...)
	wantCauses(t, s, id, "active", [2]string{core.CauseLeased, "which is over"})
	refused := core.Settlement{Kind: core.Retry, Delay: time.Hour, Failure: core.Failure{Code: "refused", Reason: "mailbox full"}}
	settleAll(t, s, refused, claimed...)
	wantCauses(t, s, id, "ready", [2]string{core.CauseBackoff, "attempt 1 ended with refused: mailbox full"})
	setJob(t, s, id, bson.D{{Key: "available_at", Value: bson.DateTime(0)}})
	refused.Kind = core.Fail
	settleAll(t, s, refused, claim(t, s, 1)...)
	wantCauses(t, s, id, "failed", [2]string{core.CauseFailed, "mailbox full (after 2 attempts"})
	setJob(t, s, id, bson.D{{Key: "state", Value: "unknown"}})
	wantCauses(t, s, id, "unknown", [2]string{core.CauseUnknown, "may have been delivered"})
	if n, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{id}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	claimed = claim(t, s, 1)
	if !claimed[0].Lease.Redelivered || !claimed[0].Lease.Redriven {
		t.Errorf("the lease does not tell that it may be a repeat: %+v", claimed[0].Lease)
	}
	settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "ses 17"}, claimed...)
	wantCauses(t, s, id, "completed", [2]string{core.CauseDelivered, "ses 17"})
}

func TestWhyAnEventHasNotGoneOut(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	appendNow(t, s, order("a"), order("b"), order("c"))
	wantCauses(t, s, "a", "waiting", [2]string{core.CauseCursorStopped, "there is no cursor"})
	c := acquire(t, s, "kafka", "host-1")
	wantCauses(t, s, "a", "waiting", [2]string{core.CauseBehind, `cursor "kafka", run by host-1`})

	events, err := s.log.Find(t.Context(), bson.D{}, sortBySeq())
	if err != nil {
		t.Fatal(err)
	}
	var marks []*mark
	for n := uint64(1); events.Next(t.Context()); n++ {
		seqT, seqI, _ := events.Current.Lookup("seq").TimestampOK()
		marks = append(marks, &mark{
			pos: core.Position{Time: numberOf(bson.Timestamp{T: seqT, I: seqI}), Ordinal: n}, id: copyOf(events.Current.Lookup("_id")),
		})
	}
	b := parked(marks[1], order("b"))
	b.Holds = true
	parkAll(t, c, b, parked(marks[2], order("c")))
	save(t, c, marks[0], marks[1], marks[2])
	wantCauses(t, s, "a", "delivered", [2]string{core.CauseDelivered, "every cursor has passed it"})
	wantCauses(t, s, "b", "failed", [2]string{core.CauseFailed, "too large"})
	wantCauses(t, s, "kafka/b", "failed", [2]string{core.CauseFailed, "too large"})

	if n, err := s.Retry(t.Context(), core.JobFilter{Cursor: "kafka", IDs: []string{"kafka/c"}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	wantCauses(t, s, "c", "ready", [2]string{core.CausePredecessor, "job kafka/b of the same key comes first and is failed"})
	if got := claimAs(t, s, core.ClaimRequest{Sink: "events", Max: 5}); len(got) != 0 {
		t.Errorf("a worker claimed jobs of a cursor: %+v", got)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	appendNow(t, s, order("d"))
	wantCauses(t, s, "d", "waiting", [2]string{core.CauseCursorStopped, `nobody runs cursor "kafka"`})
}

// Without its job the event would be read and sent again by the next holder.
func TestADiscardedEventOfACursorStaysKnown(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "host-1")
	m := markAt(t, "a", 10, 1)
	if err := c.Park(t.Context(), []core.Parked{parked(m, order("a"))}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{1, 0} {
		if n, err := s.Discard(t.Context(), core.JobFilter{Cursor: "kafka"}, operator); n != want || err != nil {
			t.Errorf("discarded %d, %v; want %d", n, err, want)
		}
	}
	wantCauses(t, s, "a", "completed", [2]string{core.CauseDiscarded, "discarded"})
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, s, "kafka", "host-2"); !next.isQueued(m.id) {
		t.Error("the next holder does not know it")
	}
}

func TestWhatWasNotRetainedIsNotRetried(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Retain: RetainNone})
	enqueue(t, s, mail("a"))
	settleAll(t, s, core.Settlement{Kind: core.Fail}, claim(t, s, 1)...)
	if n, err := s.Retry(t.Context(), core.JobFilter{All: true}, operator); n != 0 || err != nil {
		t.Errorf("retried %d, %v", n, err)
	}
}

func TestManyJobsAreRetriedInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	const n = actRange + 50
	enqueue(t, s, mails(n)...)
	settleAll(t, s, core.Settlement{Kind: core.Fail}, claim(t, s, n)...)
	act := operator
	act.Spread = time.Hour
	if done, err := s.Retry(t.Context(), core.JobFilter{Sink: "mail"}, act); done != n || err != nil {
		t.Fatal(done, err)
	}
	var due []time.Time
	var after string
	for {
		jobs, next, err := s.Jobs(t.Context(), core.JobFilter{State: core.JobReady}, after, 400)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs {
			if want := fmt.Sprintf("m-%04d", len(due)); j.AggregateID != want {
				t.Fatalf("job %d is %s, want %s", i, j.AggregateID, want)
			}
			due = append(due, j.AvailableAt)
		}
		if after = next; after == "" {
			break
		}
	}
	if len(due) != n || !slices.IsSortedFunc(due, time.Time.Compare) {
		t.Fatalf("%d jobs, their due times are in order: %t", len(due), slices.IsSortedFunc(due, time.Time.Compare))
	}
	if span := due[n-1].Sub(due[0]); span < 50*time.Minute || span > time.Hour+time.Minute {
		t.Errorf("their due times are spread over %s", span)
	}
}

func TestAPageThatWasNotGivenIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, after := range []string{"x", "!", "BQAAAAA"} {
		if _, _, err := s.Jobs(t.Context(), core.JobFilter{All: true}, after, 1); err == nil {
			t.Errorf("after %q is accepted", after)
		}
	}
}

func TestStatsTellOfCursors(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "host-1")
	appendNow(t, s, order("a"), order("b"))
	if err := c.Park(t.Context(), []core.Parked{parked(markAt(t, "x", 10, 1), order("x"))}); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || len(stats.Cursors) != 1 {
		t.Fatal(stats, err)
	}
	got := stats.Cursors[0]
	if got.Name != "kafka" || got.Owner != "host-1" || !got.Held || got.Lag.Events != 2 || got.LagBytes < 100 || got.Failed != 1 || !got.Scanning {
		t.Errorf("%+v", got)
	}
	if stats.Failed != 1 || stats.Completed != 0 || stats.LogWindow <= 0 {
		t.Errorf("%+v", stats)
	}
}

func TestACursorThatRunsIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "host-1")
	held, ok := errors.AsType[*core.HeldError](s.ForgetCursor(t.Context(), "kafka", operator))
	if !ok || held.Owner != "host-1" {
		t.Fatalf("got %+v", held)
	}
	if acts, err := s.Acts(t.Context(), 5); err != nil || len(acts) != 0 {
		t.Errorf("what was refused is recorded: %+v, %v", acts, err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetCursor(t.Context(), "kafka", operator); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s.cursors, bson.D{}); n != 0 {
		t.Errorf("%d cursors", n)
	}
	acts, err := s.Acts(t.Context(), 5)
	if err != nil || len(acts) != 1 || acts[0].What != "forget cursor" || acts[0].Target != "kafka" || acts[0].By != "jo" {
		t.Errorf("%+v, %v", acts, err)
	}
}
