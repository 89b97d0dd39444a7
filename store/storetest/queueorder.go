package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

func claimOrderRules() []rule {
	return []rule{
		queueRule("JobsGoInTheOrderOfTheirCommits", func(k *queueKit) {
			var want []string
			for i := range 12 {
				j := job(fmt.Sprintf("j-%d", i))
				if i%3 == 0 {
					j.DedupKey = j.ID
				}
				k.enqueue(j)
				want = append(want, j.ID)
			}
			k.claimInParts(want, 5)
		}),
		queueRule("JobsOfOneCallGoInTheirOrder", func(k *queueKit) {
			var want []string
			jobs := numbered("j", 12, nil)
			for _, j := range jobs {
				want = append(want, j.ID)
			}
			k.enqueue(jobs...)
			k.claimInParts(want, 5)
		}),
		queueRule("KeyedJobsOfOneCallGoInTheirOrder", func(k *queueKit) {
			var want []string
			jobs := numbered("j", 12, func(j *core.Job) { j.DedupKey = j.ID })
			for _, j := range jobs {
				want = append(want, j.ID)
			}
			k.enqueue(jobs...)
			k.claimInParts(want, 5)
		}),
		queueRule("HigherClassesGoFirst", func(k *queueKit) {
			k.enqueueClasses("low-1", "normal-1", "high-1", "normal-2", "low-2", "high-2")
			k.claimInParts([]string{"high-1", "high-2", "normal-1", "normal-2", "low-1", "low-2"}, 1)
		}),
		queueRule("HigherClassesGoFirstInOneClaim", func(k *queueKit) {
			k.enqueueClasses("low-1", "normal-1", "high-1", "normal-2", "low-2", "high-2")
			k.claimInParts([]string{"high-1", "high-2", "normal-1", "normal-2", "low-1", "low-2"}, 4)
		}),
		queueRule("FromRankLeavesOutHigherClasses", func(k *queueKit) {
			k.enqueueClasses("low-1", "normal-1", "high-1")
			if got := k.claimBy(k.queue, core.ClaimRequest{FromRank: core.Low.Rank()}); !slices.Equal(eventsOfClaims(got), []string{"low-1"}) {
				k.Errorf("claimed %v from the low class", eventsOfClaims(got))
			}
			if got := k.claimBy(k.queue, core.ClaimRequest{FromRank: core.Normal.Rank()}); !slices.Equal(eventsOfClaims(got), []string{"normal-1"}) {
				k.Errorf("claimed %v from the normal class", eventsOfClaims(got))
			}
			k.claim("high-1")
		}),
		queueRule("DelayedJobsGoInTheOrderOfTheirTime", func(k *queueKit) {
			now := k.now()
			for i, hours := range []int{3, 1, 4, 2} {
				j := job(fmt.Sprintf("in-%d-hours", hours))
				j.NotBefore = now.Add(time.Duration(hours) * time.Hour)
				if i%2 == 0 {
					j.DedupKey = j.ID
				}
				k.enqueue(j)
			}
			k.elapse(5 * time.Hour)
			k.claimInParts([]string{"in-1-hours", "in-2-hours", "in-3-hours", "in-4-hours"}, 1)
		}, elapsing),
		// Old jobs that fail again and again don't keep fresh ones waiting.
		queueRule("FreshJobsGoBeforeRetriedOnes", func(k *queueKit) {
			k.enqueue(numbered("old", 50, nil)...)
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Second}, k.claimBy(k.queue, core.ClaimRequest{})...)
			k.elapse(time.Minute)
			k.enqueueOne("fresh")
			if got := k.claimBy(k.queue, core.ClaimRequest{Max: 1}); !slices.Equal(eventsOfClaims(got), []string{"fresh"}) {
				k.Errorf("claimed %v, want the fresh one", eventsOfClaims(got))
			}
		}, elapsing),
		queueRule("TenantsTakeTurns", func(k *queueKit) {
			k.enqueueTenants(map[string]int{"a": 20, "b": 3, "c": 2})
			tenants := []string{"a", "b", "c"}
			k.wantShares(core.ClaimRequest{Max: 3, Tenants: tenants}, map[string]int{"a": 1, "b": 1, "c": 1})
			k.wantShares(core.ClaimRequest{Max: 6, Tenants: tenants}, map[string]int{"a": 3, "b": 2, "c": 1})
			k.wantShares(core.ClaimRequest{Max: 6, Tenants: tenants}, map[string]int{"a": 6})
		}),
		queueRule("EachTenantsJobsKeepTheirOrder", func(k *queueKit) {
			k.enqueueTenants(map[string]int{"a": 5, "b": 5})
			next := map[string]int{}
			for range 5 {
				for _, c := range k.claimBy(k.queue, core.ClaimRequest{Max: 2, Tenants: []string{"b", "a"}}) {
					tenant := c.Lease.Event.Tenant
					if want := fmt.Sprintf("%s-%d", tenant, next[tenant]); c.Lease.Event.ID != want {
						k.Errorf("claimed %s, want %s", c.Lease.Event.ID, want)
					}
					next[tenant]++
				}
			}
		}),
		queueRule("ClassesGoBeforeTurns", func(k *queueKit) {
			jobs := numbered("a", 3, func(j *core.Job) { j.Tenant, j.Priority = "a", core.High })
			jobs = append(jobs, numbered("b", 3, func(j *core.Job) { j.Tenant = "b" })...)
			k.enqueue(jobs...)
			k.wantShares(core.ClaimRequest{Max: 4, Tenants: []string{"b", "a"}}, map[string]int{"a": 3, "b": 1})
		}),
		queueRule("OtherTenantsAreLeft", func(k *queueKit) {
			k.enqueueTenants(map[string]int{"a": 2, "b": 2, "": 2})
			k.wantShares(core.ClaimRequest{Tenants: []string{"b", "nobody"}}, map[string]int{"b": 2})
			k.wantShares(core.ClaimRequest{Tenants: []string{""}}, map[string]int{"": 2})
			k.wantShares(core.ClaimRequest{}, map[string]int{"a": 2})
		}),
		queueRule("SpreadStartsFurtherOn", func(k *queueKit) {
			k.enqueue(numbered("j", 10, nil)...)
			got := k.claimBy(k.queue, core.ClaimRequest{Max: 3, Spread: 4})
			if want := []string{"j-4", "j-5", "j-6"}; !slices.Equal(eventsOfClaims(got), want) {
				k.Errorf("claimed %v, want %v", eventsOfClaims(got), want)
			}
		}),
		queueRule("SpreadFindsTheLastJobs", func(k *queueKit) {
			k.enqueue(numbered("j", 3, nil)...)
			if got := k.claimBy(k.queue, core.ClaimRequest{Max: 2, Spread: 50}); len(got) == 0 {
				k.Error("claimed nothing of 3 jobs")
			}
		}),
	}
}

// enqueueClasses commits a job for each name, whose beginning tells the class.
func (k *queueKit) enqueueClasses(names ...string) {
	k.Helper()
	for _, name := range names {
		j := job(name)
		j.Priority = map[byte]core.Priority{'h': core.High, 'n': core.Normal, 'l': core.Low}[name[0]]
		k.enqueue(j)
	}
}

// enqueueTenants commits so many jobs of each tenant.
func (k *queueKit) enqueueTenants(counts map[string]int) {
	k.Helper()
	for _, tenant := range slices.Sorted(maps.Keys(counts)) {
		k.enqueue(numbered(tenant, counts[tenant], func(j *core.Job) { j.Tenant = tenant })...)
	}
}

// claimInParts fails unless the jobs come in this order, so many a claim.
func (k *queueKit) claimInParts(want []string, size int) {
	k.Helper()
	for len(want) > 0 {
		part := want[:min(size, len(want))]
		got := k.claimBy(k.queue, core.ClaimRequest{Max: size})
		if !slices.Equal(eventsOfClaims(got), part) {
			k.Fatalf("claimed %v, want %v", eventsOfClaims(got), part)
		}
		want = want[len(part):]
	}
	k.claim()
}

// wantShares fails unless each tenant gets so many of the jobs.
func (k *queueKit) wantShares(req core.ClaimRequest, want map[string]int) {
	k.Helper()
	got := map[string]int{}
	for _, c := range k.claimBy(k.queue, req) {
		got[c.Lease.Event.Tenant]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		k.Errorf("claimed %v, want %v", got, want)
	}
}
