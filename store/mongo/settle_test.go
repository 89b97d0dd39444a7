package mongo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAGroupIsSettledInOneRoundTrip(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	enqueue(t, s, mails(40)...)
	claimed := append(claim(t, s, 20), claim(t, s, 20)...)
	var all []core.Settlement
	for i, c := range claimed {
		one := core.Settlement{Job: c, Kind: core.Complete, Receipt: fmt.Sprint("receipt ", i)}
		if i%3 == 0 {
			one = core.Settlement{
				Job: c, Kind: core.Retry, Delay: time.Duration(i+1) * time.Minute, Failure: core.Failure{Code: "busy", Reason: fmt.Sprint("reason ", i)},
			}
		}
		all = append(all, one)
	}
	sent.take()
	lost, err := s.Settle(t.Context(), all)
	if err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	commands := sent.take()
	if got := names(commands); !slices.Equal(got, []string{"update"}) {
		t.Errorf("sent %v, want one update", got)
	}
	// Two claims that end in two ways each.
	if updates, _ := commands[0].Command.Lookup("updates").Array().Values(); len(updates) != 4 {
		t.Errorf("%d updates, want 4", len(updates))
	}
	for i, c := range claimed {
		job := jobOf(t, s, c)
		if i%3 != 0 {
			if got := job.Lookup("result").StringValue(); got != fmt.Sprint("receipt ", i) || job.Lookup("state").StringValue() != "completed" {
				t.Errorf("job %d has the result %q", i, got)
			}
			continue
		}
		in := job.Lookup("available_at").Time().Sub(job.Lookup("failure", "at").Time())
		if reason := job.Lookup("failure", "reason").StringValue(); reason != fmt.Sprint("reason ", i) || in != time.Duration(i+1)*time.Minute {
			t.Errorf("job %d has the reason %q and is due in %s", i, reason, in)
		}
	}
	sent.take()
	if lost, err := s.Settle(t.Context(), all); err != nil || len(lost) > 0 {
		t.Errorf("again: %v, %v", lost, err)
	}
	if got := names(sent.take()); !slices.Equal(got, []string{"update", "find"}) {
		t.Errorf("again: sent %v", got)
	}
}

// Between the write of a group of which one is lost, and the look at which,
// another worker claims what was given back.
func TestWhatIsClaimedAtOnceAfterItsSettlementIsNotLost(t *testing.T) {
	t.Parallel()
	var hook commandHook
	s := newStore(t, servicetest.Database(t, hook.options()), Config{})
	other, err := New(servicetest.Mongo(t).Database(s.db.Name()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, mail("a"), mail("b"))
	claimed := claim(t, s, 2)
	endLease(t, s, time.Minute, claimed[1])
	if _, err := s.TakeBack(t.Context(), core.TakeBackRequest{}); err != nil {
		t.Fatal(err)
	}
	var second []*core.Claimed
	hook.before("find", func() { second = claim(t, other, 2) })
	release := core.Settlement{Kind: core.GiveBack}
	lost, err := s.Settle(t.Context(), []core.Settlement{{Job: claimed[0], Kind: core.GiveBack}, {Job: claimed[1], Kind: core.GiveBack}})
	if err != nil || len(lost) != 1 || lost[0] != claimed[1] {
		t.Errorf("lost %v, %v, want the second alone", payloads(lost), err)
	}
	if len(second) != 2 {
		t.Fatalf("the other worker claimed %v", payloads(second))
	}
	// Later its lease has moved on, whatever it had settled.
	if lost := settleAll(t, s, release, claimed...); lost != 2 {
		t.Errorf("%d lost, want both", lost)
	}
	if lost := settleAll(t, other, release, second...); lost != 0 {
		t.Errorf("%d of the other worker's are lost", lost)
	}
}

func TestWhatMayHaveArrivedIsRedelivered(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	enqueue(t, s, mail("a"), mail("b"))
	claimed := claim(t, s, 2)
	_, err := s.Settle(t.Context(), []core.Settlement{
		{Job: claimed[0], Kind: core.Retry, Uncounted: true, Failure: core.Failure{Code: core.CodeUnknown, Reason: "no answer"}},
		{Job: claimed[1], Kind: core.Retry, Uncounted: true, Failure: core.Failure{Code: "busy"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range claim(t, s, 2) {
		if c.Lease.Redelivered != (i == 0) || c.Lease.Attempt != 1 {
			t.Errorf("job %d: %+v", i, c.Lease)
		}
	}
}

func TestWhatIsRetained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retain Retain
		keep   map[core.SettleKind]bool
	}{
		{"", map[core.SettleKind]bool{core.Complete: false, core.Fail: true, core.EndUnknown: true, core.Retry: true}},
		{RetainAll, map[core.SettleKind]bool{core.Complete: true, core.Fail: true, core.EndUnknown: true, core.Retry: true}},
		{RetainNone, map[core.SettleKind]bool{core.Complete: false, core.Fail: false, core.EndUnknown: false, core.Retry: true}},
	} {
		t.Run("retain "+string(c.retain), func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), Config{Retain: c.retain})
			for kind, keep := range c.keep {
				enqueue(t, s, mail("a"))
				claimed := claim(t, s, 1)
				settleAll(t, s, core.Settlement{Kind: kind, Delay: time.Hour, Failure: core.Failure{Code: "x"}}, claimed...)
				job := jobOf(t, s, claimed[0])
				if kept := !job.Lookup("payload").IsZero(); kept != keep {
					t.Errorf("after %d the payload is kept: %t", kind, kept)
				}
				if job.Lookup("hash").IsZero() {
					t.Errorf("after %d the hash is gone", kind)
				}
			}
		})
	}
}

func TestRetentionsAreCountedByTheServer(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{CompletedRetention: time.Hour, FailedRetention: 2 * time.Hour})
	enqueue(t, s, mails(3)...)
	for kind, keep := range map[core.SettleKind]time.Duration{core.Complete: time.Hour, core.Fail: 2 * time.Hour, core.EndUnknown: 0} {
		claimed := claim(t, s, 1)
		settleAll(t, s, core.Settlement{Kind: kind}, claimed...)
		job := jobOf(t, s, claimed[0])
		expire, ok := job.Lookup("expire_at").TimeOK()
		if keep == 0 {
			if ok {
				t.Errorf("kind %d expires at %s", kind, expire)
			}
			continue
		}
		if got := expire.Sub(job.Lookup("finished_at").Time()); got != keep {
			t.Errorf("kind %d is kept for %s, want %s", kind, got, keep)
		}
	}
}

func TestForeignHandlesAreRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	if _, err := s.Settle(t.Context(), []core.Settlement{{Job: &core.Claimed{Ref: 1}, Kind: core.Complete}}); err == nil {
		t.Error("a job of another store is settled")
	}
	if _, err := s.Extend(t.Context(), []*core.Claimed{nil}, 0); err == nil {
		t.Error("no job is extended")
	}
	enqueue(t, s, mail("a"))
	if _, err := s.Settle(t.Context(), []core.Settlement{{Job: claim(t, s, 1)[0]}}); err == nil {
		t.Error("a settlement without a kind is written")
	}
}

// A value of the caller's is never read as an expression.
func TestTextsThatLookLikeExpressionsAreKept(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	j := mail("a")
	j.Headers = map[string]string{"a": "$$ROOT"}
	j.DedupKey, j.AggregateID = "$x", "$y"
	enqueue(t, s, j)
	claimed := claimAs(t, s, core.ClaimRequest{Max: 1, Owner: "$payload"})
	settleAll(t, s, core.Settlement{Kind: core.Retry, Failure: core.Failure{Code: "$a", Reason: "$$b"}}, claimed...)
	job := jobOf(t, s, claimed[0])
	if job.Lookup("failure", "code").StringValue() != "$a" || job.Lookup("failure", "reason").StringValue() != "$$b" ||
		job.Lookup("headers", "a").StringValue() != "$$ROOT" || job.Lookup("aggregate_id").StringValue() != "$y" {
		t.Errorf("stored %s", job)
	}
	claimed = claimAs(t, s, core.ClaimRequest{Max: 2, Owner: "$payload"})
	settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "$z"}, claimed...)
	if job := jobOf(t, s, claimed[0]); job.Lookup("result").StringValue() != "$z" || job.Lookup("owner").StringValue() != "$payload" {
		t.Errorf("stored %s", job)
	}
	if err := s.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "$s"}, Reason: "$r", By: "$b"}); err != nil {
		t.Fatal(err)
	}
	pauses, err := s.Pauses(t.Context())
	if err != nil || len(pauses) != 1 || pauses[0].Reason != "$r" || pauses[0].By != "$b" || pauses[0].Name != "$s" {
		t.Errorf("pauses %+v, %v", pauses, err)
	}
}
