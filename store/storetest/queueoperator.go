package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// operator is who acts in the rules.
var operator = core.Act{By: "me", Reason: "the test"}

func operatorRules() []rule {
	rules := []rule{
		queueRule("RetryStartsTheAttemptsAnew", func(k *queueKit) {
			r := k.enqueueOne("a")
			for range 3 {
				k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, k.claimOne("a"))
			}
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			k.retry(1, core.JobFilter{IDs: []string{r.ID}})
			got := k.claimOne("a")
			if got.Lease.Attempt != 1 || !got.Lease.Redriven || !bytes.Equal(got.Lease.Event.Payload, job("a").Payload) {
				k.Errorf("the lease after a retry by hand is %+v", got.Lease)
			}
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, got)
			if got := k.claimOne("a"); got.Lease.Attempt != 2 || !got.Lease.Redriven {
				k.Errorf("the lease after another retry is %+v", got.Lease)
			}
		}),
		queueRule("RetryClearsTheEndOfTheRetention", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			k.retry(1, core.JobFilter{Sink: sinkName})
			if info := k.wantState(r.ID, core.JobReady); !info.ExpireAt.IsZero() {
				k.Errorf("it expires at %v", info.ExpireAt)
			}
			k.elapse(years)
			k.cleanJobs(0)
			k.claim("a")
		}, elapsing),
		queueRule("RetriedCrashMayComeBackAgain", func(k *queueKit) {
			k.enqueueOne("a")
			req := core.TakeBackRequest{MaxRedeliveries: 1}
			for range 2 {
				for _, want := range []core.TakeBackResult{{Ready: 1}, {Crashed: 1}} {
					k.claim("a")
					k.elapse(lapse)
					k.takeBack(req, want)
				}
				k.retry(1, core.JobFilter{Code: core.CodeCrashed})
			}
		}, elapsing),
		queueRule("UnknownIsRetried", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.EndUnknown, Failure: refusal}, k.claimOne("a"))
			k.retry(1, core.JobFilter{IDs: []string{r.ID}})
			k.claim("a")
		}),
		queueRule("RetryLeavesOthers", func(k *queueKit) {
			r := k.enqueue(job("done"), job("active"), job("ready"))
			k.settle(core.Settlement{Kind: core.Complete}, k.claimBy(k.queue, core.ClaimRequest{Max: 1})...)
			k.claimBy(k.queue, core.ClaimRequest{Max: 1})
			k.retry(0, core.JobFilter{All: true})
			for i, want := range []core.JobState{core.JobCompleted, core.JobActive, core.JobReady} {
				k.wantState(r[i].ID, want)
			}
		}),
		queueRule("SettledAgainAfterARetryIsLost", func(k *queueKit) {
			r := k.enqueueOne("a")
			got := k.claimOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, got)
			k.retry(1, core.JobFilter{IDs: []string{r.ID}})
			k.wantLost(k.trySettle(core.Settlement{Kind: core.Fail, Failure: refusal}, got), got)
			k.wantState(r.ID, core.JobReady)
		}),
		queueRule("RetryMakesWaitingJobsDue", checkRetryOfWaiting),
		queueRule("RetrySpreadsKeysInTheirOrder", func(k *queueKit) {
			const n = 6
			k.enqueue(numbered("j", n, func(j *core.Job) { j.AggregateID = "key" })...)
			got := k.claimBy(k.queue, core.ClaimRequest{})
			slices.Reverse(got)
			for _, c := range got {
				k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, c)
			}
			act := operator
			act.Spread = time.Hour
			if done, err := k.admin.Retry(k.ctx, core.JobFilter{Key: "key"}, act); done != n || err != nil {
				k.Fatalf("retried %d, %v", done, err)
			}
			k.elapse(20 * time.Minute)
			early := k.claimBy(k.queue, core.ClaimRequest{})
			if len(early) == 0 || len(early) == n {
				k.Errorf("%d of %d jobs are due after a third of the time", len(early), n)
			}
			k.elapse(time.Hour)
			all := slices.Concat(early, k.claimBy(k.queue, core.ClaimRequest{}))
			for i, c := range all {
				if want := fmt.Sprintf("j-%d", i); c.Lease.Event.ID != want {
					k.Errorf("number %d is %s, want %s", i, c.Lease.Event.ID, want)
				}
			}
		}, elapsing),
		queueRule("DiscardRemoves", func(k *queueKit) {
			r := k.enqueue(job("active"), keyed("failed", "key"), job("ready"))
			k.claimBy(k.queue, core.ClaimRequest{Max: 1})
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimBy(k.queue, core.ClaimRequest{Max: 1})...)
			k.discard(2, core.JobFilter{Sink: sinkName})
			k.wantState(r[0].ID, core.JobActive)
			k.wantGone(r[1].ID)
			k.wantGone(r[2].ID)
			if got := k.enqueue(keyed("again", "key"))[0]; got.Duplicate {
				k.Errorf("receipt %+v after the job was discarded", got)
			}
			k.claim("again")
		}),
		queueRule("DryRunChangesNothing", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			act := operator
			act.DryRun = true
			for range 2 {
				if n, err := k.admin.Retry(k.ctx, core.JobFilter{All: true}, act); n != 1 || err != nil {
					k.Errorf("a dry retry counts %d, %v", n, err)
				}
				if n, err := k.admin.Discard(k.ctx, core.JobFilter{All: true}, act); n != 1 || err != nil {
					k.Errorf("a dry discard counts %d, %v", n, err)
				}
			}
			k.wantState(r.ID, core.JobFailed)
		}),
		queueRule("EmptyFilterSelectsNothing", func(k *queueKit) {
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			if n, _ := k.admin.Retry(k.ctx, core.JobFilter{}, operator); n != 0 {
				k.Errorf("retried %d", n)
			}
			if n, _ := k.admin.Discard(k.ctx, core.JobFilter{}, operator); n != 0 {
				k.Errorf("discarded %d", n)
			}
		}),
		queueRule("ActsNeedAnOperator", func(k *queueKit) {
			k.enqueueOne("a")
			if n, err := k.admin.Discard(k.ctx, core.JobFilter{All: true}, core.Act{}); n != 0 || err == nil {
				k.Errorf("nobody discarded %d, %v", n, err)
			}
			if err := k.admin.PauseBy(k.ctx, core.Pause{PauseTarget: sinkTarget}, core.Act{}); err == nil {
				k.Error("nobody paused")
			}
			k.claim("a")
		}),
		queueRule("ActsAreRecorded", checkActs),
		queueRule("PauseByAnOperatorBinds", func(k *queueKit) {
			if err := k.admin.PauseBy(k.ctx, core.Pause{PauseTarget: sinkTarget, For: time.Minute}, operator); err != nil {
				k.Fatal(err)
			}
			k.pause(sinkTarget, time.Hour, "")
			k.wantPause(sinkTarget, time.Minute, operator.By)
			if err := k.admin.ResumeBy(k.ctx, sinkTarget, operator); err != nil {
				k.Fatal(err)
			}
			k.wantPause(sinkTarget, 0, "")
		}),
		queueRule("UnknownIDIsNoJob", func(k *queueKit) {
			if _, err := k.admin.Job(k.ctx, "nothing"); !errors.Is(err, core.ErrNoJob) {
				k.Errorf("%v, want core.ErrNoJob", err)
			}
			if _, err := k.admin.Explain(k.ctx, "nothing"); !errors.Is(err, core.ErrNoJob) {
				k.Errorf("%v, want core.ErrNoJob", err)
			}
		}),
		queueRule("JobsComePageByPage", func(k *queueKit) {
			const n = 10
			k.enqueue(numbered("j", n, nil)...)
			var got []string
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				jobs, next, err := k.admin.Jobs(k.ctx, core.JobFilter{Sink: sinkName}, after, 4)
				if err != nil || len(jobs) > 4 || pages > n {
					k.Fatalf("page %d of %d jobs, %v", pages, len(jobs), err)
				}
				for _, j := range jobs {
					got = append(got, j.EventID)
				}
				after = next
			}
			for i, id := range got {
				if want := fmt.Sprintf("j-%d", i); len(got) != n || id != want {
					k.Fatalf("listed %v", got)
				}
			}
		}),
		queueRule("StatsCount", checkStats),
	}
	for i := range rules {
		rules[i].needs = append(rules[i].needs, administering)
	}
	return append(rules, filterRules()...)
}

// filterRules: each field of a filter selects, and they select together.
func filterRules() []rule {
	filters := map[string]core.JobFilter{
		"Sink": {Sink: "other"}, "Tenant": {Tenant: "other"}, "Type": {Type: "other"}, "Key": {Key: "other"},
		"Code": {Code: "other"}, "State": {State: core.JobUnknown}, "OlderThan": {OlderThan: time.Hour},
	}
	var rules []rule
	for field, filter := range filters {
		rules = append(rules, queueRule("FilterBy"+field, func(k *queueKit) {
			other := job("other")
			s := core.Settlement{Kind: core.Fail, Failure: refusal}
			switch field {
			case "Sink":
				other.Sink = "other"
			case "Tenant":
				other.Tenant = "other"
			case "Type":
				other.Type = "other"
			case "Key":
				other.AggregateID = "other"
			case "Code":
				s.Failure.Code = "other"
			case "State":
				s.Kind = core.EndUnknown
			}
			k.enqueue(other)
			k.settle(s, k.claimBy(k.queue, core.ClaimRequest{Sink: other.Sink})...)
			if field == "OlderThan" {
				k.elapse(2 * time.Hour)
			}
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			jobs, _, err := k.admin.Jobs(k.ctx, filter, "", 10)
			if err != nil || len(jobs) != 1 || jobs[0].EventID != "other" {
				k.Errorf("listed %+v, %v; want the other", jobs, err)
			}
			filter.IDs = []string{"nothing"}
			k.retry(0, filter)
			filter.IDs = nil
			k.retry(1, filter)
			k.claim(map[bool][]string{true: nil, false: {"other"}}[field == "Sink"]...)
		}, administering, elapsing))
	}
	return rules
}

// checkRetryOfWaiting: a person who asks for it doesn't wait for a delay to end.
func checkRetryOfWaiting(k *queueKit) {
	delayed := job("delayed")
	delayed.NotBefore = k.now().Add(time.Hour)
	k.enqueueOne("backoff")
	k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Hour}, k.claimOne("backoff"))
	r := k.enqueue(delayed, job("due"))
	k.retry(0, core.JobFilter{All: true})
	k.retry(0, core.JobFilter{Sink: sinkName})
	k.retry(0, core.JobFilter{IDs: []string{r[1].ID}})
	k.claim("due")
	k.retry(1, core.JobFilter{IDs: []string{r[0].ID}})
	if got := k.claimOne("delayed"); got.Lease.Attempt != 1 || got.Lease.Redriven {
		k.Errorf("the lease of a delayed job after a retry by hand is %+v", got.Lease)
	}
	act := operator
	act.Spread = 2 * time.Hour
	if n, err := k.admin.Retry(k.ctx, core.JobFilter{State: core.JobReady}, act); n != 1 || err != nil {
		k.Errorf("retried %d jobs, %v; want 1", n, err)
	}
	if got := k.claimOne("backoff"); got.Lease.Attempt != 2 || got.Lease.Redriven {
		k.Errorf("the lease of a job in its backoff after a retry by hand is %+v", got.Lease)
	}
}

func checkActs(k *queueKit) {
	k.enqueue(numbered("j", 2, nil)...)
	k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimBy(k.queue, core.ClaimRequest{})...)
	k.retry(2, core.JobFilter{Sink: sinkName})
	k.discard(2, core.JobFilter{Sink: sinkName})
	if err := k.admin.PauseBy(k.ctx, core.Pause{PauseTarget: sinkTarget}, operator); err != nil {
		k.Fatal(err)
	}
	if err := k.admin.ResumeBy(k.ctx, sinkTarget, operator); err != nil {
		k.Fatal(err)
	}
	acts, err := k.admin.Acts(k.ctx, 10)
	if err != nil || len(acts) != 4 {
		k.Fatalf("%d acts are recorded, %v: %+v", len(acts), err, acts)
	}
	for i, what := range []string{"resume", "pause", "discard", "retry"} {
		a := acts[i]
		if a.What != what || a.By != operator.By || a.Reason != operator.Reason || a.At.IsZero() || a.Target == "" {
			k.Errorf("act %d is recorded as %+v, want a %s", i, a, what)
		}
		if i >= 2 && a.Count != 2 {
			k.Errorf("the %s counts %d jobs, want 2", what, a.Count)
		}
	}
	if last, err := k.admin.Acts(k.ctx, 1); err != nil || len(last) != 1 || last[0].What != "resume" {
		k.Errorf("the last act is %+v, %v", last, err)
	}
}

func checkStats(k *queueKit) {
	delayed := job("delayed")
	delayed.NotBefore = k.now().Add(time.Hour)
	before, err := k.admin.Stats(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	kinds := []core.SettleKind{core.Complete, core.Fail, core.EndUnknown, 0}
	k.enqueue(numbered("j", len(kinds), nil)...)
	for i, c := range k.claimBy(k.queue, core.ClaimRequest{}) {
		if kinds[i] != 0 {
			k.settle(core.Settlement{Kind: kinds[i], Failure: refusal}, c)
		}
	}
	k.enqueue(delayed, job("ready"))
	k.pause(sinkTarget, time.Hour, "")
	got, err := k.admin.Stats(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	for name, n := range map[string]int64{
		"ready": got.Ready, "delayed": got.Delayed, "active": got.Active, "failed": got.Failed, "unknown": got.Unknown,
		"completed": got.Completed - before.Completed,
	} {
		if n != 1 {
			k.Errorf("%d jobs are %s, want 1", n, name)
		}
	}
	if len(got.Pauses) != 1 || got.At.IsZero() || got.OldestReady < 0 || got.OldestReady > time.Minute {
		k.Errorf("stats %+v", got)
	}
	for _, s := range got.Sinks {
		if s.Sink == sinkName && (s.Ready != 1 || s.Delayed != 1 || s.Active != 1 || s.Failed != 1 || s.Unknown != 1) {
			k.Errorf("stats of the sink %+v", s)
		}
	}
	if !slices.ContainsFunc(got.Sinks, func(s core.SinkStats) bool { return s.Sink == sinkName }) {
		k.Errorf("stats of the sinks %+v", got.Sinks)
	}
}

func (k *queueKit) retry(want int64, filter core.JobFilter) {
	k.Helper()
	if n, err := k.admin.Retry(k.ctx, filter, operator); n != want || err != nil {
		k.Errorf("retried %d jobs, %v; want %d", n, err, want)
	}
}

func (k *queueKit) discard(want int64, filter core.JobFilter) {
	k.Helper()
	if n, err := k.admin.Discard(k.ctx, filter, operator); n != want || err != nil {
		k.Errorf("discarded %d jobs, %v; want %d", n, err, want)
	}
}

// wantGone fails unless there is no such job.
func (k *queueKit) wantGone(id string) {
	k.Helper()
	if info, err := k.h.Job(k.ctx, k.store, id); !errors.Is(err, core.ErrNoJob) {
		k.Errorf("the job is %s, %v; want core.ErrNoJob", info.State, err)
	}
}
