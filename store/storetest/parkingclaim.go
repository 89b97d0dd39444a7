package storetest

import (
	"bytes"
	"time"

	"github.com/gooutbox/outbox/core"
)

// crashAtOnce lets no lease run out without a failure.
var crashAtOnce = core.TakeBackRequest{MaxRedeliveries: -1}

func claimJobsRules() []rule {
	return []rule{
		parking("ClaimedInTheOrderOfTheRequest", []string{"a1", "b1", "c1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1", "c1")
			open := k.open("a1", "b1", "c1")
			got := k.lend([]core.OpenJob{open[2], open[0], open[1]}, "c1", "a1", "b1")
			k.settle(core.Settlement{Kind: core.Complete}, got...)
		}),
		parking("ClaimGivesTheLease", []string{"a1", "b1"}, func(k *parkingKit) {
			p := k.ready("a1")
			p.Attempts, p.MaxAttempts, p.Failure, p.Redelivered = 2, 7, refusal, true
			k.parkAll(p, k.ready("b1"))
			before := time.Now()
			got := k.lend(k.open("a1", "b1"), "a1", "b1")
			after := time.Now()
			l, want := got[0].Lease, k.entries["a1"].Event
			if l.Attempt != 3 || !l.Redelivered || l.Redriven || got[0].MaxAttempts != 7 || got[0].Sink != sinkName || got[0].Err != nil {
				k.Errorf("lent %+v", got[0])
			}
			if l.Event.AggregateID != want.AggregateID || l.Event.Type != want.Type || !bytes.Equal(l.Event.Payload, want.Payload) {
				k.Errorf("lent the event %+v, want %+v", l.Event, want)
			}
			if l.Route != cursorName || l.Fence != k.c.Term().Fence || l.Source != k.store.Source() {
				k.Errorf("the lease is of %q, fence %d, %q", l.Route, l.Fence, l.Source)
			}
			if l.Deadline.Before(before.Add(lease)) || l.Deadline.After(after.Add(lease)) {
				k.Errorf("the deadline is in %s", time.Until(l.Deadline))
			}
			if l := got[1].Lease; l.Attempt != 1 || l.Redelivered || got[1].MaxAttempts != core.DefaultMaxAttempts {
				k.Errorf("lent %+v", got[1])
			}
		}),
		parking("DelayedIsClaimed", []string{"a1"}, func(k *parkingKit) {
			p := k.ready("a1")
			p.Delay = time.Hour
			k.parkAll(p)
			k.lend(k.open("a1"), "a1")
		}),
		parking("LentToOneAlone", []string{"a1", "b1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1")
			open := k.open("a1", "b1")
			k.lend(open[:1], "a1")
			k.lend(open, "b1")
			k.lend(open)
			k.c = k.takeOver("second")
			k.lend(k.open("a1", "b1"))
		}),
		parking("WhatIsFinalIsNotLent", []string{"a1", "b1", "c1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1", "c1")
			open := k.open("a1", "b1", "c1")
			got := k.lend(open, "a1", "b1", "c1")
			k.settle(core.Settlement{Kind: core.Complete}, got[0])
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal, Holds: true}, got[1])
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, got[2])
			k.lend(open)
		}),
		parking("WorkersNeverGetThem", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			k.claim()
			for _, req := range []core.ClaimRequest{{Max: 1}, {Tenants: []string{""}}} {
				if got := k.claimBy(k.queue, req); len(got) > 0 {
					k.Errorf("a worker claimed %v", eventsOfClaims(got))
				}
			}
			if _, there, err := k.queue.NextDue(k.ctx, sinkName, nil); there || err != nil {
				k.Errorf("a worker has something to wait for: %v", err)
			}
			if names, err := k.queue.Tenants(k.ctx, sinkName, "", 10); len(names) > 0 || err != nil {
				k.Errorf("tenants %q, %v", names, err)
			}
		}),
		parking("NothingIsClaimedOfNothing", nil, func(k *parkingKit) {
			k.lend(k.open())
		}),
	}
}

// parkedJobRules are about settling and taking back.
func parkedJobRules() []rule {
	return []rule{
		parking("SettledJobsGoOn", []string{"a1", "b1"}, func(k *parkingKit) {
			p := k.ready("a1")
			p.Attempts = 1
			k.parkAll(p, k.ready("b1"))
			got := k.lend(k.open("a1", "b1"), "a1", "b1")
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Hour}, got[0])
			k.settle(core.Settlement{Kind: core.GiveBack}, got[1])
			open := k.open("a1", "b1")
			k.wantOpenState(open[0], core.JobReady, 2)
			k.wantDue(open[0], time.Hour)
			k.wantOpenState(open[1], core.JobReady, 0)
			k.wantDue(open[1], 0)
			got = k.lend(open, "a1", "b1")
			k.settle(core.Settlement{Kind: core.Retry, Failure: core.Failure{Code: core.CodeUnknown}, Uncounted: true}, got[0])
			open = k.open("a1", "b1")
			k.wantOpenState(open[0], core.JobReady, 2)
			if l := k.lend(open[:1], "a1")[0].Lease; !l.Redelivered || l.Attempt != 3 {
				k.Errorf("the lease after an unknown outcome is %+v", l)
			}
		}),
		parking("StaleLeaseSettlesNothing", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			stale := k.lend(k.open("a1"), "a1")
			k.lapse(1)
			fresh := k.lend(k.open("a1"), "a1")
			for _, kind := range []core.SettleKind{core.Complete, core.Retry, core.Fail, core.EndUnknown, core.GiveBack} {
				k.wantLost(k.trySettle(core.Settlement{Kind: kind, Failure: refusal, Holds: true}, stale...), stale...)
			}
			k.wantLost(k.extend(k.queue, stale...), stale...)
			k.wantOpenState(k.open("a1")[0], core.JobActive, 0)
			k.settle(core.Settlement{Kind: core.Complete}, fresh...)
			k.open()
		}, elapsing),
		parking("FormerHoldersLeaseIsGood", []string{"a1", "b1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1")
			got := k.lend(k.open("a1", "b1"), "a1", "b1")
			k.c = k.takeOver("second")
			k.wantLost(k.extend(k.queue, got...))
			k.wantOpenState(k.open("a1", "b1")[0], core.JobActive, 0)
			k.settle(core.Settlement{Kind: core.Complete}, got[0])
			k.settle(core.Settlement{Kind: core.GiveBack}, got[1])
			k.lend(k.open("b1"), "b1")
		}),
		parking("ExtendedIsNotTakenBack", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			got := k.lend(k.open("a1"), "a1")
			k.elapse(lease / 2)
			k.wantLost(k.extend(k.queue, got...))
			k.elapse(lease/2 + core.TakeBackGrace + time.Second)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.settle(core.Settlement{Kind: core.Complete}, got...)
		}, elapsing),
		parking("TakenBackIsRedelivered", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			k.lend(k.open("a1"), "a1")
			k.lapse(1)
			open := k.open("a1")
			k.wantOpenState(open[0], core.JobReady, 0)
			k.wantDue(open[0], 0)
			if got := k.lend(open, "a1")[0]; got.Redeliveries != 1 || !got.Lease.Redelivered || got.Lease.Attempt != 1 {
				k.Errorf("lent %+v", got)
			}
		}, elapsing),
		parking("CrashesEndAsFailed", []string{"a1", "b1"}, func(k *parkingKit) {
			holds := k.ready("b1")
			holds.Holds = true
			p := k.parkAll(k.ready("a1"), holds)
			k.lend(k.open("a1", "b1"), "a1", "b1")
			k.elapse(lapse)
			k.takeBack(crashAtOnce, core.TakeBackResult{Crashed: 2})
			k.wantOpenState(k.open("b1")[0], core.JobFailed, 0)
			for i, parked := range p {
				if info := k.wantState(parked.ID, core.JobFailed); info.Failure.Code != core.CodeCrashed || info.Holds != (i == 1) {
					k.Errorf("%s holds its key: %t, failed as %+v", info.EventID, info.Holds, info.Failure)
				}
			}
		}, elapsing, inspecting),
		// What the holder says last decides.
		parking("SettleDecidesWhetherACrashHolds", []string{"a1"}, func(k *parkingKit) {
			p := k.ready("a1")
			p.Holds = true
			id := k.parkAll(p)[0].ID
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.lend(k.open("a1"), "a1")...)
			k.open()
			k.retry(1, core.JobFilter{IDs: []string{id}})
			k.lend(k.open("a1"), "a1")
			k.elapse(lapse)
			k.takeBack(crashAtOnce, core.TakeBackResult{Crashed: 1})
			k.open()
		}, elapsing, administering),
		queueRule("OnlyJobsOfACursorHold", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal, Holds: true}, k.claimOne("a"))
			if info := k.wantState(r.ID, core.JobFailed); info.Holds || info.ExpireAt.IsZero() {
				k.Errorf("a job of no cursor holds: %t, expires at %v", info.Holds, info.ExpireAt)
			}
		}, inspecting),
		parking("NoneIsCleaned", []string{"a1", "b1", "c1", "d1"}, func(k *parkingKit) {
			p := k.parkAll(k.ready("a1"), k.ready("b1"), k.failure("c1", true), k.failure("d1", false))
			k.lend(k.open("a1", "b1", "c1")[:1], "a1")
			k.elapse(years)
			k.cleanJobs(0)
			k.open("a1", "b1", "c1")
			k.wantState(p[3].ID, core.JobFailed)
		}, elapsing, inspecting),
	}
}
