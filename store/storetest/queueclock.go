package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// clockRules: a worker whose clock is an hour off neither steals nor loses.
func clockRules() []rule {
	var rules []rule
	for name, off := range map[string]time.Duration{"Ahead": time.Hour, "Behind": -time.Hour} {
		skewed := func(name string, check func(k *queueKit, off Queue, handle Store), needs ...need) {
			rules = append(rules, queueRule("Worker"+name, func(k *queueKit) {
				handle := k.h.Skewed(k.T, k.store, off)
				check(k, k.h.Queue(handle), handle)
			}, append(needs, skewing)...))
		}
		skewed(name+"StealsNoLease", func(k *queueKit, off Queue, _ Store) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.takeBackBy(off, core.TakeBackRequest{}, core.TakeBackResult{})
			if stolen := k.claimBy(off, core.ClaimRequest{}); len(stolen) > 0 {
				k.Errorf("claimed %v", eventsOfClaims(stolen))
			}
			k.settle(core.Settlement{Kind: core.Complete}, got)
		})
		skewed(name+"KeepsItsLease", func(k *queueKit, off Queue, _ Store) {
			k.enqueueOne("a")
			got := k.claimBy(off, core.ClaimRequest{})
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.elapse(lease - time.Minute)
			k.wantLost(k.extend(off, got...))
			k.elapse(lease - time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.settle(core.Settlement{Kind: core.Complete}, got...)
		}, elapsing)
		skewed(name+"LosesItsLeaseInTime", func(k *queueKit, off Queue, _ Store) {
			k.enqueueOne("a")
			got := k.claimBy(off, core.ClaimRequest{})
			k.wantLost(k.extend(off, got...))
			k.elapse(lapse)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
			k.claim("a")
		}, elapsing)
		skewed(name+"TakesBackInTime", func(k *queueKit, off Queue, _ Store) {
			k.enqueueOne("a")
			k.claim("a")
			k.elapse(lapse)
			k.takeBackBy(off, core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
		}, elapsing)
		skewed(name+"EnqueuesWhatIsDueAtOnce", func(k *queueKit, _ Queue, handle Store) {
			k.enqueueBy(handle, job("a"), keyed("b", "key"))
			k.wantDue("a", "b")
		})
		skewed(name+"LeavesDelayedJobs", func(k *queueKit, off Queue, _ Store) {
			j := job("a")
			j.NotBefore = k.now().Add(30 * time.Minute)
			k.enqueue(j)
			if got := k.claimBy(off, core.ClaimRequest{}); len(got) > 0 {
				k.Errorf("claimed %v half an hour early", eventsOfClaims(got))
			}
			k.elapse(31 * time.Minute)
			if got := k.claimBy(off, core.ClaimRequest{}); len(got) != 1 {
				k.Errorf("claimed %d due jobs, want 1", len(got))
			}
		}, elapsing)
		skewed(name+"RetriesByTheStoresClock", func(k *queueKit, off Queue, _ Store) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			lost, err := off.Settle(k.ctx, []core.Settlement{{Job: got, Kind: core.Retry, Failure: refusal, Delay: 10 * time.Minute}})
			if err != nil || len(lost) > 0 {
				k.Fatalf("%d lost, %v", len(lost), err)
			}
			k.wantNextDue(nil, 10*time.Minute)
			k.claim()
			k.elapse(11 * time.Minute)
			k.claim("a")
		}, elapsing)
		skewed(name+"PausesByTheStoresClock", func(k *queueKit, off Queue, _ Store) {
			err := off.Pause(k.ctx, core.Pause{PauseTarget: sinkTarget, For: 10 * time.Minute, Reason: "busy"})
			if err != nil {
				k.Fatal(err)
			}
			k.wantPause(sinkTarget, 10*time.Minute, "")
			pauses, err := off.Pauses(k.ctx)
			if err != nil || len(pauses) != 1 {
				k.Errorf("it sees the pauses %v, %v", pauses, err)
			}
		})
	}
	return rules
}
