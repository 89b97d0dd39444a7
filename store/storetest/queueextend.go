package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

func extendRules() []rule {
	return []rule{
		queueRule("GivesAWholeLease", func(k *queueKit) {
			k.enqueue(job("a"), job("b"))
			got := k.claim("a", "b")
			k.elapse(lease - time.Minute)
			k.wantLost(k.extend(k.queue, got[0]))
			k.elapse(lease - time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
			k.claim("b")
			k.elapse(lapse - lease + time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
		}, elapsing),
		queueRule("MayBeAskedByAnotherHandle", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.wantLost(k.extend(k.second, got))
		}),
		queueRule("ManyAtOnce", func(k *queueKit) {
			const n = 300
			k.enqueue(numbered("j", n, nil)...)
			var all []*core.Claimed
			for len(all) < n {
				got := k.claimBy(k.queue, core.ClaimRequest{Max: 70})
				if len(got) == 0 {
					k.Fatalf("claimed %d of %d jobs", len(all), n)
				}
				all = append(all, got...)
			}
			k.elapse(lease - time.Minute)
			k.wantLost(k.extend(k.queue, all...))
			k.elapse(lease - time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
		}, elapsing),
		queueRule("LostIsTold", func(k *queueKit) {
			k.enqueue(job("a"), job("b"))
			got := k.claim("a", "b")
			k.elapse(lapse)
			k.wantLost(k.extend(k.queue, got[1]))
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
			k.wantLost(k.extend(k.queue, got...), got[0])
			k.claim("a")
		}, elapsing),
		queueRule("StaleHolderLengthensNoNewLease", func(k *queueKit) {
			k.enqueueOne("a")
			stale := k.claimOne("a")
			k.lapse(1)
			k.claim("a")
			k.elapse(lease - time.Minute)
			k.wantLost(k.extend(k.queue, stale), stale)
			k.elapse(lapse - lease + time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
		}, elapsing),
		queueRule("RanOutButNotTakenBackIsExtended", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.elapse(lapse)
			k.wantLost(k.extend(k.queue, got))
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.settle(core.Settlement{Kind: core.Complete}, got)
		}, elapsing),
		queueRule("SettledJobStaysSettled", func(k *queueKit) {
			for _, kind := range []core.SettleKind{core.Complete, core.Retry, core.Fail, core.EndUnknown, core.GiveBack} {
				id := kindNames[kind]
				r := k.enqueueOne(id)
				got := k.claimOne(id)
				k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: 100 * time.Hour}, got)
				before := k.info(r.ID)
				k.extend(k.queue, got)
				if after := k.info(r.ID); after.State != before.State || !after.AvailableAt.Equal(before.AvailableAt) {
					k.Errorf("%s: %s, due at %v, after an extension; was %s, %v", id, after.State, after.AvailableAt, before.State, before.AvailableAt)
				}
			}
		}, inspecting),
		queueRule("OfNothingIsNoError", func(k *queueKit) { k.wantLost(k.extend(k.queue)) }),
	}
}
