package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// staleHolderRules: a worker that slept over the end of its lease wakes up and
// goes on. Whatever it says matches nothing and is told as lost.
func staleHolderRules() []rule {
	var rules []rule
	for kind, name := range kindNames {
		rules = append(rules,
			queueRule(name+"OfATakenBackJobIsLost", func(k *queueKit) {
				r := k.enqueueOne("a")
				stale := k.claimOne("a")
				k.lapse(1)
				k.wantStale(kind, stale)
				k.wantState(r.ID, core.JobReady)
				if got := k.claimOne("a"); got.Lease.Attempt != 1 || got.Redeliveries != 1 {
					k.Errorf("attempt %d, %d redeliveries; want 1 and 1", got.Lease.Attempt, got.Redeliveries)
				}
			}, elapsing, inspecting),
			queueRule(name+"OfAnothersJobIsLost", func(k *queueKit) {
				r := k.enqueueOne("a")
				stale := k.claimOne("a")
				k.lapse(1)
				holder := k.claimBy(k.second, core.ClaimRequest{Owner: "other"})
				k.wantStale(kind, stale)
				if info := k.wantState(r.ID, core.JobActive); info.Owner != "other" || info.Result != "" {
					k.Errorf("the job is shown as %+v", info)
				}
				k.settle(core.Settlement{Kind: core.Complete, Receipt: "other's"}, holder...)
				k.wantStale(kind, stale)
				if info := k.wantState(r.ID, core.JobCompleted); info.Result != "other's" || info.Attempts != 1 {
					k.Errorf("the job is shown as %+v", info)
				}
			}, elapsing, inspecting),
			queueRule(name+"OfAJobLentAgainIsLost", func(k *queueKit) {
				k.enqueueOne("a")
				stale := k.claimOne("a")
				k.settle(core.Settlement{Kind: core.GiveBack}, stale)
				holder := k.claimOne("a")
				k.wantStale(kind, stale)
				k.claim()
				k.settle(core.Settlement{Kind: core.Complete}, holder)
			}),
		)
	}
	return append(rules,
		queueRule("LostOnesDoNotHinderTheOthers", func(k *queueKit) {
			first := k.enqueue(job("a"), job("b"))
			stale := k.claim("a", "b")
			k.lapse(2)
			second := k.enqueue(job("c"), job("d"))
			holders := k.claimBy(k.second, core.ClaimRequest{Max: 1})
			holders = append(holders, k.claimBy(k.second, core.ClaimRequest{})...)
			if len(holders) != 4 {
				k.Fatalf("claimed %v, want four", eventsOfClaims(holders))
			}
			own := map[string]*core.Claimed{}
			for _, c := range holders {
				own[c.Lease.Event.ID] = c
			}
			all := []*core.Claimed{own["c"], stale[0], own["b"], stale[1], own["d"]}
			k.wantLost(k.trySettle(core.Settlement{Kind: core.Complete}, all...), stale...)
			k.wantState(first[0].ID, core.JobActive)
			for _, r := range append(second, first[1]) {
				k.wantState(r.ID, core.JobCompleted)
			}
		}, elapsing, inspecting),
		// Its first call was answered by an error, though it had taken effect.
		queueRule("RepeatAfterTheJobMovedOnChangesNothing", func(k *queueKit) {
			k.enqueueOne("a")
			first := k.claimOne("a")
			s := core.Settlement{Kind: core.Retry, Failure: refusal}
			k.settle(s, first)
			holder := k.claimOne("a")
			k.wantLost(k.trySettle(s, first), first)
			k.claim()
			k.settle(s, holder)
			if got := k.claimOne("a"); got.Lease.Attempt != 3 {
				k.Errorf("attempt %d, want 3", got.Lease.Attempt)
			}
		}),
		queueRule("JobThatIsGoneIsLost", func(k *queueKit) {
			r := k.enqueueOne("a")
			stale := k.claimOne("a")
			k.lapse(1)
			if n, err := k.admin.Discard(k.ctx, core.JobFilter{IDs: []string{r.ID}}, core.Act{By: "test"}); n != 1 || err != nil {
				k.Fatalf("discarded %d jobs, %v", n, err)
			}
			k.wantStale(core.Complete, stale)
			k.wantLost(k.extend(k.queue, stale), stale)
			k.claim()
		}, elapsing, administering),
	)
}

// wantStale fails unless the settlement is told as lost.
func (k *queueKit) wantStale(kind core.SettleKind, stale *core.Claimed) {
	k.Helper()
	k.wantLost(k.trySettle(core.Settlement{
		Kind: kind, Failure: refusal, Receipt: "stale", Delay: time.Hour,
	}, stale), stale)
}
