package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

func claimRules() []rule {
	return []rule{
		queueRule("LentToOneAlone", func(k *queueKit) {
			k.enqueue(job("a"), job("b"))
			k.claimBy(k.queue, core.ClaimRequest{Max: 1})
			if got := k.claimBy(k.second, core.ClaimRequest{}); !slices.Equal(eventsOfClaims(got), []string{"b"}) {
				k.Errorf("another worker claimed %v, want b", eventsOfClaims(got))
			}
			k.claim()
		}),
		queueRule("GivesTheLease", checkLease),
		queueRule("ShowsItsHolder", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.claimBy(k.queue, core.ClaimRequest{Owner: "worker-7"})
			info := k.wantState(r.ID, core.JobActive)
			if left := info.LeaseUntil.Sub(k.now()); info.Owner != "worker-7" || left < lease-time.Minute || left > lease {
				k.Errorf("held by %q for %v, want worker-7 for %v", info.Owner, left, lease)
			}
		}, inspecting),
		queueRule("MaxIsKept", func(k *queueKit) {
			k.enqueue(numbered("j", 10, nil)...)
			for _, n := range []int{1, 2, 4, 3} {
				if got := len(k.claimBy(k.queue, core.ClaimRequest{Max: n})); got != n {
					k.Errorf("claimed %d, want %d", got, n)
				}
			}
			k.claim()
		}),
		queueRule("NoneIsNoError", func(k *queueKit) { k.claim() }),
		queueRule("NeedsASinkAndANumber", func(k *queueKit) {
			k.enqueueOne("a")
			for _, req := range []core.ClaimRequest{{Max: 1}, {Sink: sinkName}} {
				if got, err := k.queue.Claim(k.ctx, req); err == nil {
					k.Errorf("%+v claimed %d jobs without an error", req, len(got))
				}
			}
			k.claim("a")
		}),
		queueRule("OtherSinksAreLeft", func(k *queueKit) {
			other := job("b")
			other.Sink = "other"
			k.enqueue(job("a"), other, job("c"))
			k.wantDue("a", "c")
		}),
		queueRule("DelayedJobIsLeft", func(k *queueKit) {
			j := job("a")
			j.NotBefore = k.now().Add(time.Hour)
			k.enqueue(j)
			k.claim()
			if k.h.Elapse == nil {
				return
			}
			k.elapse(59 * time.Minute)
			k.claim()
			k.elapse(2 * time.Minute)
			k.claim("a")
		}),
		queueRule("NotBeforeInThePastIsDue", func(k *queueKit) {
			j := job("a")
			j.NotBefore = k.now().Add(-time.Hour)
			k.enqueue(j)
			k.claim("a")
		}),
		// Only TakeBack ends a lease that ran out.
		queueRule("LeaseThatRanOutIsNotClaimed", func(k *queueKit) {
			k.enqueueOne("a")
			k.claim("a")
			k.elapse(lapse)
			k.claim()
		}, elapsing),
		queueRule("EachClaimIsAnotherLease", func(k *queueKit) {
			k.enqueueOne("a")
			seen := map[string]bool{}
			for range 10 {
				got := k.claimOne("a")
				token := fmt.Sprintf("%#v", got.Ref)
				if seen[token] {
					k.Fatalf("two leases have the handle %s", token)
				}
				seen[token] = true
				k.settle(core.Settlement{Kind: core.GiveBack}, got)
			}
		}),
		queueRule("UndecodableIsLentWithItsError", func(k *queueKit) {
			if err := k.h.PutJob(k.ctx, k.store, sinkName); err != nil {
				k.Fatal(err)
			}
			k.enqueueOne("a")
			var bad *core.Claimed
			got := k.claimBy(k.queue, core.ClaimRequest{})
			for _, c := range got {
				if c.Err != nil {
					bad = c
				}
			}
			if len(got) != 2 || bad == nil || bad.ID == "" {
				k.Fatalf("claimed %v, want a and one with an error and an id", eventsOfClaims(got))
			}
			k.settle(core.Settlement{Kind: core.Fail, Failure: core.Failure{Code: core.CodeUndecodable, Reason: bad.Err.Error()}}, bad)
			k.claim()
			if k.h.Job != nil {
				if info := k.wantState(bad.ID, core.JobFailed); info.Failure.Code != core.CodeUndecodable {
					k.Errorf("the failure is %+v", info.Failure)
				}
			}
		}, puttingJobs),
		queueRule("JobOfACursorIsLeft", func(k *queueKit) {
			c := k.cursor()
			k.append("a")
			p := parked(k.read(c, 1)[0])
			p.Sink = sinkName
			if err := c.Park(k.ctx, []core.Parked{p}); err != nil {
				k.Fatal(err)
			}
			n, err := k.admin.Retry(k.ctx, core.JobFilter{Cursor: cursorName}, core.Act{By: "test", Reason: "try again"})
			if err != nil || n != 1 {
				k.Fatalf("retried %d jobs of the cursor, %v, want 1", n, err)
			}
			k.claim()
		}, administering),
		queueRule("CompetingWorkersShareTheJobs", checkCompetition),
	}
}

func checkLease(k *queueKit) {
	j := job("a")
	j.AggregateID, j.Tenant = "key-1", "tenant-1"
	k.enqueue(j)
	before := time.Now()
	got := k.claimOne("a")
	after := time.Now()
	l := got.Lease
	if l.Deadline.Before(before.Add(lease)) || l.Deadline.After(after.Add(lease)) {
		k.Errorf("deadline %v, want %v after the claim was sent, between %v and %v", l.Deadline, lease, before, after)
	}
	if l.Attempt != 1 || l.Redelivered || l.Redriven || l.Route != "" || l.Fence != 0 || l.Source == "" {
		k.Errorf("lease %+v, want the first attempt of a job, and where it is stored", l)
	}
	if got.Redeliveries != 0 || got.Err != nil || got.Ref == nil || got.Sink != sinkName {
		k.Errorf("claimed %+v", got)
	}
	if got.EnqueuedAt.IsZero() || got.AvailableAt.Before(got.EnqueuedAt) {
		k.Errorf("enqueued at %v, available at %v", got.EnqueuedAt, got.AvailableAt)
	}
	// A store may know the time of an enqueue by the second.
	if waited := got.ClaimedAt.Sub(got.AvailableAt); waited < -2*time.Second || waited > time.Minute {
		k.Errorf("waited %v from %v to %v", waited, got.AvailableAt, got.ClaimedAt)
	}
}

// checkCompetition: workers claim in all ways at once; each job is lent once.
func checkCompetition(k *queueKit) {
	const workers, jobs = 8, 240
	k.enqueue(numbered("j", jobs, func(j *core.Job) { j.Tenant = "tenant-" + j.ID[len(j.ID)-1:] })...)
	var mu sync.Mutex
	claims := map[string]int{}
	total := 0
	var all sync.WaitGroup
	for w := range workers {
		q := k.queue
		if w%2 == 1 {
			q = k.second
		}
		all.Go(func() {
			for over := false; !over && k.ctx.Err() == nil; {
				req := core.ClaimRequest{Max: 1 + w%4*3, Owner: fmt.Sprintf("worker-%d", w), Spread: w % 3 * 10}
				if w >= 6 {
					req.Tenants = []string{"tenant-0", "tenant-1", "tenant-2", "tenant-3"}
				}
				got, err := k.tryClaim(q, req)
				if err != nil {
					k.Errorf("worker %d: %v", w, err)
					return
				}
				mu.Lock()
				for _, c := range got {
					claims[c.ID]++
				}
				total += len(got)
				over = total >= jobs || w >= 6 && len(got) == 0
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(claims) != jobs || total != jobs {
		k.Errorf("%d leases of %d jobs, want %d of each", total, len(claims), jobs)
	}
}
