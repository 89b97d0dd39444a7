package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

func dueRules() []rule {
	return []rule{
		queueRule("TenantsAreListed", func(k *queueKit) {
			delayed := job("later")
			delayed.Tenant, delayed.NotBefore = "delayed", k.now().Add(time.Hour)
			other := job("other")
			other.Tenant, other.Sink = "elsewhere", "other"
			k.enqueue(delayed, other)
			k.enqueueTenants(map[string]int{"b": 3, "a": 2, "": 1})
			k.wantTenants("", "a", "b", "delayed")
		}),
		queueRule("TenantsComePageByPage", func(k *queueKit) {
			var want []string
			for i := range 10 {
				tenant := fmt.Sprintf("tenant-%d", i)
				want = append(want, tenant)
				k.enqueueTenants(map[string]int{tenant: 2})
			}
			var got []string
			for after := ""; ; {
				page, err := k.queue.Tenants(k.ctx, sinkName, after, 3)
				if err != nil || len(page) > 3 {
					k.Fatalf("listed %v, %v", page, err)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
				after = page[len(page)-1]
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				k.Errorf("listed %v, want %v", got, want)
			}
		}),
		queueRule("TenantsWithoutReadyJobsAreNotListed", func(k *queueKit) {
			k.enqueueTenants(map[string]int{"active": 1, "done": 1, "failed": 1, "retried": 1})
			for _, c := range k.claimBy(k.queue, core.ClaimRequest{}) {
				kind := map[string]core.SettleKind{"done": core.Complete, "failed": core.Fail, "retried": core.Retry}[c.Lease.Event.Tenant]
				if kind != 0 {
					k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: time.Hour}, c)
				}
			}
			k.wantTenants("retried")
		}),
		queueRule("NothingIsDueInAnEmptyQueue", func(k *queueKit) {
			other := job("other")
			other.Sink = "other"
			k.enqueue(other)
			k.wantNextDue(nil, -1)
		}),
		queueRule("ReadyJobIsDueNow", func(k *queueKit) {
			late := job("late")
			late.NotBefore = k.now().Add(time.Hour)
			k.enqueue(late, job("a"))
			k.wantNextDue(nil, 0)
		}),
		queueRule("NextDueIsTheEarliest", func(k *queueKit) {
			now := k.now()
			for _, hours := range []int{5, 2, 3} {
				j := job(fmt.Sprintf("in-%d-hours", hours))
				j.NotBefore, j.Priority = now.Add(time.Duration(hours)*time.Hour), core.Priority(hours%3-1)
				k.enqueue(j)
			}
			k.wantNextDue(nil, 2*time.Hour)
			if k.h.Elapse != nil {
				k.elapse(30 * time.Minute)
				k.wantNextDue(nil, 90*time.Minute)
				k.elapse(100 * time.Minute)
				k.wantNextDue(nil, 0)
			}
		}),
		queueRule("NextDueOfTenants", func(k *queueKit) {
			now := k.now()
			for i, tenant := range []string{"a", "b", "c"} {
				j := job(tenant)
				j.Tenant, j.NotBefore = tenant, now.Add(time.Duration(i+1)*time.Hour)
				k.enqueue(j)
			}
			k.wantNextDue([]string{"b", "c"}, 2*time.Hour)
			k.wantNextDue([]string{"c"}, 3*time.Hour)
			k.wantNextDue([]string{"nobody"}, -1)
			k.wantNextDue(nil, time.Hour)
		}),
		queueRule("OnlyReadyJobsAreDue", func(k *queueKit) {
			k.enqueue(numbered("j", 3, nil)...)
			got := k.claimBy(k.queue, core.ClaimRequest{})
			k.wantNextDue(nil, -1)
			k.settle(core.Settlement{Kind: core.Complete}, got[0])
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, got[1])
			k.wantNextDue(nil, -1)
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Hour}, got[2])
			k.wantNextDue(nil, time.Hour)
		}),
	}
}

// wantTenants fails unless these have ready jobs; they are sorted.
func (k *queueKit) wantTenants(want ...string) {
	k.Helper()
	got, err := k.queue.Tenants(k.ctx, sinkName, "", 100)
	if err != nil {
		k.Fatalf("listing tenants: %v", err)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		k.Errorf("listed %q, want %q", got, want)
	}
}

// wantNextDue fails unless the next job is due then, or there is none where
// want is below zero.
func (k *queueKit) wantNextDue(tenants []string, want time.Duration) {
	k.Helper()
	got, there, err := k.queue.NextDue(k.ctx, sinkName, tenants)
	switch {
	case err != nil:
		k.Fatalf("looking for the next due job: %v", err)
	case there != (want >= 0):
		k.Errorf("next due: %t, want %t", there, want >= 0)
	case there && (got < 0 || got > want || got < want-time.Minute):
		k.Errorf("next due in %v, want about %v", got, want)
	}
}
