package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

func ExampleStore_Enqueue() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	welcome := core.Job{
		Event: core.Event{Type: "mail.requested", Payload: []byte(`{"to":"a@example.org"}`)},
		Sink:  "mail", DedupKey: "welcome-17",
	}
	for range 2 {
		err := store.InTransaction(ctx, func(ctx context.Context) error {
			receipts, err := store.Enqueue(ctx, welcome)
			if err == nil {
				fmt.Println("duplicate:", receipts[0].Duplicate)
			}
			return err
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	jobs, err := store.Claim(ctx, core.ClaimRequest{Sink: "mail", Max: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	var done []core.Settlement
	for _, j := range jobs {
		fmt.Println(j.Lease.Event.Type)
		done = append(done, core.Settlement{Job: j, Kind: core.Complete})
	}
	lost, err := store.Settle(ctx, done)
	fmt.Println(len(lost), err)
	// Output:
	// duplicate: false
	// duplicate: true
	// mail.requested
	// 0 <nil>
}

func enqueue(t *testing.T, s *memory.Store, jobs ...core.Job) {
	t.Helper()
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, jobs...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mail(id string) core.Job {
	return core.Job{Event: core.Event{ID: id, Type: "mail.requested"}, Sink: "mail"}
}

func claim(t *testing.T, s *memory.Store, want int) []*core.Claimed {
	t.Helper()
	got, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 100})
	if err != nil || len(got) != want {
		t.Fatalf("claimed %d jobs, %v; want %d", len(got), err, want)
	}
	return got
}

func takeBack(t *testing.T, s *memory.Store, want core.TakeBackResult) {
	t.Helper()
	if got, err := s.TakeBack(t.Context(), core.TakeBackRequest{}); err != nil || got != want {
		t.Fatalf("took back %+v, %v; want %+v", got, err, want)
	}
}

func TestJobLeaseRunsOutByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		enqueue(t, s, mail("a"))
		got := claim(t, s, 1)
		if want := time.Now().Add(core.DefaultJobLease); !got[0].Lease.Deadline.Equal(want) {
			t.Errorf("deadline %v, want %v", got[0].Lease.Deadline, want)
		}
		time.Sleep(core.DefaultJobLease + core.TakeBackGrace)
		takeBack(t, s, core.TakeBackResult{})
		time.Sleep(time.Nanosecond)
		takeBack(t, s, core.TakeBackResult{Ready: 1})
		claim(t, s, 1)
	})
}

func TestDelayedJobIsDueByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		j := mail("a")
		j.NotBefore = time.Now().Add(time.Hour)
		enqueue(t, s, j)
		due, there, err := s.NextDue(t.Context(), "mail", nil)
		if err != nil || !there || due != time.Hour {
			t.Fatalf("due in %v (%t), %v; want 1h", due, there, err)
		}
		time.Sleep(due - time.Nanosecond)
		claim(t, s, 0)
		time.Sleep(time.Nanosecond)
		claim(t, s, 1)
	})
}

func TestWatchTellsAtOnceAndEndsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		wakes := make(chan core.Wake, 10)
		done := make(chan error, 1)
		go func() { done <- s.Watch(ctx, func(w core.Wake) { wakes <- w }) }()
		if w := <-wakes; w != (core.Wake{}) {
			t.Errorf("it has begun, and says %+v", w)
		}
		enqueue(t, s, mail("a"))
		if w := <-wakes; w.Sink != "mail" {
			t.Errorf("woken for %q, want mail", w.Sink)
		}
		claim(t, s, 1)
		synctest.Wait()
		if len(wakes) > 0 {
			t.Error("woken by a claim")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v, want the end of its context", err)
		}
	})
}

// Two transactions enqueue under one key; the one that commits second is run
// again and told of the first.
func TestConflictOnADedupKeyRunsTheFunctionAgain(t *testing.T) {
	s := memory.New(memory.Config{})
	key := mail("")
	key.DedupKey = "key"
	runs := 0
	var last core.Receipt
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		runs++
		receipts, err := s.Enqueue(ctx, key)
		if err != nil {
			return err
		}
		last = receipts[0]
		if runs == 1 {
			enqueue(t, s, key) // in a transaction of its own
		}
		return s.Append(ctx, core.Event{AggregateID: "k", Type: "t"})
	})
	if err != nil || runs != 2 || !last.Duplicate {
		t.Errorf("%d runs, %+v, %v; want 2 and a duplicate", runs, last, err)
	}
	claim(t, s, 1)
	c := acquire(t, s, "me")
	if b, err := c.Read(t.Context(), core.ReadLimit{}); err != nil || len(b.Entries) != 1 {
		t.Errorf("%d events, %v; want that of the second run alone", len(b.Entries), err)
	}
}

func TestFaultKeepsAQueueOperationFromTakingEffect(t *testing.T) {
	boom := errors.New("boom")
	fail := ""
	s := memory.New(memory.Config{Fault: func(op string) error {
		if op == fail {
			return boom
		}
		return nil
	}})
	enqueue(t, s, mail("a"))
	fail = memory.OpClaim
	if _, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 1}); !errors.Is(err, boom) {
		t.Errorf("claim: %v, want the fault", err)
	}
	fail = memory.OpSettle
	got := claim(t, s, 1)
	complete := []core.Settlement{{Job: got[0], Kind: core.Complete}}
	if _, err := s.Settle(t.Context(), complete); !errors.Is(err, boom) {
		t.Errorf("settle: %v, want the fault", err)
	}
	if info, err := s.Job(t.Context(), got[0].ID); err != nil || info.State != core.JobActive {
		t.Errorf("the job is %s, %v; want active", info.State, err)
	}
	fail = memory.OpEnqueue
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		_, _ = s.Enqueue(ctx, mail("b"))
		return nil
	})
	if !errors.Is(err, boom) {
		t.Errorf("a transaction after a fault: %v, want the fault", err)
	}
}

func TestLostAnswerOfASettleLeavesTheEffect(t *testing.T) {
	boom := errors.New("boom")
	lose := true
	s := memory.New(memory.Config{Lost: func(op string) error {
		if op == memory.OpSettle && lose {
			return boom
		}
		return nil
	}})
	enqueue(t, s, mail("a"))
	got := claim(t, s, 1)
	complete := []core.Settlement{{Job: got[0], Kind: core.Complete}}
	if _, err := s.Settle(t.Context(), complete); !errors.Is(err, boom) {
		t.Errorf("settle: %v, want the lost answer", err)
	}
	lose = false
	if lost, err := s.Settle(t.Context(), complete); err != nil || len(lost) > 0 {
		t.Errorf("settling again: %d lost, %v", len(lost), err)
	}
	if info, err := s.Job(t.Context(), got[0].ID); err != nil || info.State != core.JobCompleted || info.Attempts != 1 {
		t.Errorf("the job is %+v, %v", info, err)
	}
}

func TestExplainNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		act := core.Act{By: "me", Reason: "maintenance"}
		later := mail("later")
		later.NotBefore = time.Now().Add(time.Hour)
		enqueue(t, s, mail("a"), later)
		wantCauses(t, s, "a", core.CauseDue)
		wantCauses(t, s, "later", core.CauseDelayed)
		target := core.PauseTarget{Scope: core.PauseSink, Name: "mail"}
		if err := s.PauseBy(t.Context(), core.Pause{PauseTarget: target}, act); err != nil {
			t.Fatal(err)
		}
		wantCauses(t, s, "later", core.CausePaused, core.CauseDelayed)
		if err := s.ResumeBy(t.Context(), target, act); err != nil {
			t.Fatal(err)
		}
		got := claim(t, s, 1)
		wantCauses(t, s, "a", core.CauseLeased)
		for _, step := range []struct {
			kind core.SettleKind
			want string
		}{{core.Retry, core.CauseBackoff}, {core.Fail, core.CauseFailed}, {core.EndUnknown, core.CauseUnknown}, {core.Complete, core.CauseDelivered}} {
			settlement := core.Settlement{Job: got[0], Kind: step.kind, Delay: time.Minute, Failure: core.Failure{Code: core.CodeRejected, Reason: "no"}}
			if _, err := s.Settle(t.Context(), []core.Settlement{settlement}); err != nil {
				t.Fatal(err)
			}
			wantCauses(t, s, "a", step.want)
			if _, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{got[0].ID}}, act); err != nil {
				t.Fatal(err)
			}
			if time.Sleep(time.Minute); step.kind != core.Complete {
				got = claim(t, s, 1)
			}
		}
		appendOne(t, s, "event")
		wantCauses(t, s, "event", core.CauseCursorStopped)
		c := acquire(t, s, "me")
		wantCauses(t, s, "event", core.CauseBehind)
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Save(t.Context(), []core.Mark{b.Entries[0].Mark}); err != nil {
			t.Fatal(err)
		}
		wantCauses(t, s, "event", core.CauseDelivered)
	})
}

func wantCauses(t *testing.T, s *memory.Store, id string, want ...string) {
	t.Helper()
	e, err := s.Explain(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range e.Causes {
		got = append(got, c.Code)
		if c.Text == "" {
			t.Errorf("%s: %s has no sentence", id, c.Code)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s waits for %v, want %v", id, got, want)
	}
}
