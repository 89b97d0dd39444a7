package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

func cleanJobsRules() []rule {
	return []rule{
		queueRule("FailedGoAfterTheirRetention", func(k *queueKit) {
			r := k.enqueue(numbered("j", 3, nil)...)
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimBy(k.queue, core.ClaimRequest{})...)
			info := k.info(r[0].ID)
			if !info.ExpireAt.After(info.FinishedAt) {
				k.Fatalf("a job that failed at %v expires at %v", info.FinishedAt, info.ExpireAt)
			}
			k.elapse(info.ExpireAt.Sub(info.FinishedAt) - time.Minute)
			k.cleanJobs(0)
			k.wantState(r[0].ID, core.JobFailed)
			k.elapse(2 * time.Minute)
			k.cleanJobs(3)
			k.cleanJobs(0)
			k.wantGone(r[0].ID)
		}, elapsing, inspecting),
		queueRule("CrashedGoAfterTheirRetention", func(k *queueKit) {
			k.enqueueOne("a")
			k.claim("a")
			k.elapse(lapse)
			k.takeBack(core.TakeBackRequest{MaxRedeliveries: -1}, core.TakeBackResult{Crashed: 1})
			k.cleanJobs(0)
			k.elapse(years)
			k.cleanJobs(1)
		}, elapsing),
		queueRule("OthersStay", func(k *queueKit) {
			states := map[string]core.SettleKind{"unknown": core.EndUnknown, "retried": core.Retry, "given-back": core.GiveBack, "active": 0}
			ids := map[string]string{}
			for id, kind := range states {
				ids[id] = k.enqueueOne(id).ID
				if got := k.claimOne(id); kind != 0 {
					k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: 2 * years}, got)
				}
			}
			ids["ready"] = k.enqueueOne("ready").ID
			k.elapse(years)
			k.cleanJobs(0)
			for id, state := range map[string]core.JobState{
				"unknown": core.JobUnknown, "retried": core.JobReady, "given-back": core.JobReady, "active": core.JobActive, "ready": core.JobReady,
			} {
				k.wantState(ids[id], state)
			}
		}, elapsing, inspecting),
		queueRule("CompletedAreNotCounted", func(k *queueKit) {
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Complete}, k.claimOne("a"))
			k.elapse(years)
			k.cleanJobs(0)
		}, elapsing),
		queueRule("JobsOfCursorsStay", func(k *queueKit) {
			c := k.cursor()
			k.append("a")
			k.park(c, k.read(c, 1)[0])
			k.elapse(years)
			k.cleanJobs(0)
			if _, there := k.failed()["a"]; !there {
				k.Error("the parked event is gone")
			}
		}, elapsing, failures),
		queueRule("RemovedJobHoldsNoKey", func(k *queueKit) {
			k.enqueue(keyed("a", "key"))
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			k.elapse(years)
			k.cleanJobs(1)
			if r := k.enqueue(keyed("b", "key"))[0]; r.Duplicate {
				k.Errorf("receipt %+v after the first job was removed", r)
			}
			k.claim("b")
		}, elapsing),
	}
}

// years is longer than any retention.
const years = 10 * 365 * 24 * time.Hour

func (k *queueKit) cleanJobs(want int64) {
	k.Helper()
	got, err := k.queue.CleanJobs(k.ctx)
	if err != nil {
		k.Fatalf("cleaning jobs: %v", err)
	}
	if got != want {
		k.Errorf("removed %d jobs, want %d", got, want)
	}
}
