package storetest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

var kindNames = map[core.SettleKind]string{
	core.Complete: "Complete", core.Retry: "Retry", core.Fail: "Fail",
	core.EndUnknown: "EndUnknown", core.GiveBack: "GiveBack",
}

var settledStates = map[core.SettleKind]core.JobState{
	core.Complete: core.JobCompleted, core.Retry: core.JobReady, core.Fail: core.JobFailed,
	core.EndUnknown: core.JobUnknown, core.GiveBack: core.JobReady,
}

func settleRules() []rule {
	rules := []rule{
		queueRule("CompletedIsDoneWithItsResult", func(k *queueKit) {
			r := k.enqueueOne("a")
			got := k.claimOne("a")
			k.settle(core.Settlement{Kind: core.Complete, Receipt: "stored as 7"}, got)
			k.claim()
			info := k.wantState(r.ID, core.JobCompleted)
			if info.Result != "stored as 7" || info.Attempts != 1 || info.FinishedAt.Before(got.ClaimedAt.Add(-time.Second)) || info.ExpireAt.Before(info.FinishedAt) {
				k.Errorf("completed as %+v", info)
			}
			if !info.LeaseUntil.IsZero() || info.Owner != "" {
				k.Errorf("held by %q until %v after its end", info.Owner, info.LeaseUntil)
			}
		}, inspecting),
		queueRule("CompletedKeepsNoPayload", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Complete}, k.claimOne("a"))
			if n := k.info(r.ID).PayloadBytes; n != 0 {
				k.Errorf("%d bytes of payload are kept", n)
			}
		}, inspecting),
		queueRule("RetriedComesBackAtOnce", func(k *queueKit) {
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, k.claimOne("a"))
			got := k.claimOne("a")
			if got.Lease.Attempt != 2 || got.Lease.Redelivered || got.Lease.Redriven || got.Redeliveries != 0 {
				k.Errorf("the second attempt has %+v and %d redeliveries", got.Lease, got.Redeliveries)
			}
			if len(got.Lease.Event.Payload) == 0 {
				k.Error("the payload is gone")
			}
		}),
		queueRule("RetriedKeepsTheReason", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, k.claimOne("a"))
			if info := k.wantState(r.ID, core.JobReady); info.Failure != refusal || info.FailedAt.IsZero() || info.Attempts != 1 {
				k.Errorf("retried as %+v", info)
			}
		}, inspecting),
		queueRule("RetriedComesBackAfterItsDelay", comesBackLater(core.Retry)),
		queueRule("GivenBackComesBackAfterItsDelay", comesBackLater(core.GiveBack)),
		queueRule("DelayCountsFromTheSettle", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.elapse(5 * time.Minute)
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: 3 * time.Minute}, got)
			k.elapse(time.Minute)
			k.claim()
			k.elapse(3 * time.Minute)
			k.claim("a")
		}, elapsing),
		queueRule("UncountedRetryCountsNoAttempt", func(k *queueKit) {
			k.enqueueOne("a")
			for range 3 {
				got := k.claimOne("a")
				if got.Lease.Attempt != 1 || got.Redeliveries != 0 {
					k.Errorf("attempt %d, %d redeliveries after uncounted tries", got.Lease.Attempt, got.Redeliveries)
				}
				k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Uncounted: true}, got)
			}
		}),
		queueRule("GivenBackIsAsNeverClaimed", func(k *queueKit) {
			k.enqueueOne("a")
			for range 3 {
				got := k.claimOne("a")
				if got.Lease.Attempt != 1 || got.Redeliveries != 0 || got.Lease.Redelivered || got.Lease.Redriven {
					k.Errorf("attempt %d, %d redeliveries, %+v after it was given back", got.Lease.Attempt, got.Redeliveries, got.Lease)
				}
				k.settle(core.Settlement{Kind: core.GiveBack}, got)
			}
		}),
		queueRule("AttemptsAreCounted", func(k *queueKit) {
			r := k.enqueueOne("a")
			for n := 1; n <= 3; n++ {
				got := k.claimOne("a")
				if got.Lease.Attempt != n {
					k.Errorf("attempt %d, want %d", got.Lease.Attempt, n)
				}
				k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, got)
				k.settle(core.Settlement{Kind: core.GiveBack}, k.claimOne("a"))
			}
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			if info := k.info(r.ID); info.Attempts != 4 {
				k.Errorf("%d attempts are kept, want 4", info.Attempts)
			}
		}, inspecting),
		queueRule("FailedKeepsReasonAndPayload", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			k.claim()
			info := k.wantState(r.ID, core.JobFailed)
			if info.Failure != refusal || info.FailedAt.IsZero() || info.FinishedAt.IsZero() || info.Attempts != 1 || info.PayloadBytes == 0 {
				k.Errorf("failed as %+v", info)
			}
		}, inspecting),
		queueRule("LongReasonIsCut", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: core.Failure{
				Code: core.CodeRejected, Reason: "." + strings.Repeat("é", core.MaxReasonBytes),
			}}, k.claimOne("a"))
			got := k.info(r.ID).Failure.Reason
			if len(got) > core.MaxReasonBytes || len(got) < core.MaxReasonBytes-8 || !utf8.ValidString(got) {
				k.Errorf("kept %d bytes of the reason, valid UTF-8: %t", len(got), utf8.ValidString(got))
			}
		}, inspecting),
		queueRule("UnknownIsKept", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.EndUnknown, Failure: refusal}, k.claimOne("a"))
			k.claim()
			if info := k.wantState(r.ID, core.JobUnknown); info.Failure != refusal || info.PayloadBytes == 0 {
				k.Errorf("ended as %+v", info)
			}
		}, inspecting),
		queueRule("AllKindsInOneCall", checkMixedSettle, inspecting),
		queueRule("OtherJobsOfTheClaimAreLeft", func(k *queueKit) {
			k.enqueue(job("a"), job("b"), job("c"))
			got := k.claim("a", "b", "c")
			k.settle(core.Settlement{Kind: core.Complete}, got[1])
			k.claim()
			k.settle(core.Settlement{Kind: core.GiveBack}, got[0], got[2])
			k.wantDue("a", "c")
		}),
		queueRule("RanOutButNotTakenBackIsSettled", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.elapse(lapse)
			k.settle(core.Settlement{Kind: core.Complete}, got)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.claim()
		}, elapsing),
		queueRule("AnotherKindLaterChangesNothing", func(k *queueKit) {
			r := k.enqueueOne("a")
			got := k.claimOne("a")
			k.settle(core.Settlement{Kind: core.Complete, Receipt: "first"}, got)
			for kind := range kindNames {
				k.trySettle(core.Settlement{Kind: kind, Failure: refusal, Receipt: "later"}, got)
				if info := k.wantState(r.ID, core.JobCompleted); info.Result != "first" {
					k.Errorf("%s replaced the result by %q", kindNames[kind], info.Result)
				}
			}
		}, inspecting),
		queueRule("OfNothingIsNoError", func(k *queueKit) {
			if lost, err := k.queue.Settle(k.ctx, nil); err != nil || len(lost) > 0 {
				k.Errorf("%v, %v", lost, err)
			}
		}),
		queueRule("NoKindIsRefused", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			if _, err := k.queue.Settle(k.ctx, []core.Settlement{{Job: got}}); err == nil {
				k.Error("a settlement of no kind was taken")
			}
			k.settle(core.Settlement{Kind: core.Complete}, got)
		}),
	}
	for kind, name := range kindNames {
		rules = append(rules, queueRule(name+"AgainIsSafe", settleAgain(kind), inspecting))
	}
	return rules
}

func comesBackLater(kind core.SettleKind) func(*queueKit) {
	return func(k *queueKit) {
		k.enqueueOne("a")
		got := k.claimOne("a")
		k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: time.Hour}, got)
		k.claim()
		if k.h.Elapse == nil {
			return
		}
		k.elapse(59 * time.Minute)
		k.claim()
		k.elapse(2 * time.Minute)
		k.claim("a")
	}
}

// settleAgain: the answer of the first call was lost.
func settleAgain(kind core.SettleKind) func(*queueKit) {
	return func(k *queueKit) {
		r := k.enqueue(job("a"), job("b"))[0]
		got := k.claim("a", "b")
		s := core.Settlement{Kind: kind, Receipt: "stored", Failure: refusal, Delay: time.Hour}
		k.settle(s, got[0])
		want := k.wantState(r.ID, settledStates[kind])
		k.settle(s, got...)
		now := k.wantState(r.ID, settledStates[kind])
		if now.Attempts != want.Attempts || !now.AvailableAt.Equal(want.AvailableAt) || now.Result != want.Result {
			k.Errorf("the second call made %+v of %+v", now, want)
		}
	}
}

func checkMixedSettle(k *queueKit) {
	const each = 40
	var settlements []core.Settlement
	ids := map[core.SettleKind][]core.Receipt{}
	for kind := range kindNames {
		ids[kind] = k.enqueue(numbered(kindNames[kind], each, nil)...)
		for _, c := range k.claimBy(k.queue, core.ClaimRequest{}) {
			settlements = append(settlements, core.Settlement{
				Job: c, Kind: kind, Receipt: c.Lease.Event.ID, Delay: time.Hour,
				Failure: core.Failure{Code: core.CodeRejected, Reason: "of " + c.Lease.Event.ID},
			})
		}
	}
	lost, err := k.queue.Settle(k.ctx, settlements)
	if err != nil || len(lost) > 0 {
		k.Fatalf("%d lost, %v", len(lost), err)
	}
	for kind, receipts := range ids {
		for _, r := range receipts {
			info := k.wantState(r.ID, settledStates[kind])
			wantReason := kind == core.Retry || kind == core.Fail || kind == core.EndUnknown
			if kind == core.Complete && info.Result != info.EventID || wantReason && info.Failure.Reason != "of "+info.EventID {
				k.Errorf("%s has the result %q and the reason %q", info.EventID, info.Result, info.Failure.Reason)
			}
		}
	}
}
