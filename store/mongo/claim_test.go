package mongo

import (
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAJobIsLentSettledAndKept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		receipts := enqueue(t, s, mail("a"), mail("b"), mail("c"))
		for n := range 2 {
			claimed := claim(t, s, n+1)
			if len(claimed) != n+1 {
				t.Fatalf("claimed %d, want %d", len(claimed), n+1)
			}
			for i, c := range claimed {
				if c.ID != receipts[n+i].ID || c.Lease.Event.ID != c.ID || c.Lease.Attempt != 1 || c.Err != nil {
					t.Errorf("claimed %+v", c)
				}
				if d := time.Since(c.ClaimedAt); d < -time.Minute || d > time.Minute || c.AvailableAt.After(c.ClaimedAt.Add(time.Second)) {
					t.Errorf("claimed at %s, available at %s", c.ClaimedAt, c.AvailableAt)
				}
			}
			if lost := settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "ok"}, claimed...); lost != 0 {
				t.Errorf("%d lost", lost)
			}
			if job := jobOf(t, s, claimed[0]); job.Lookup("result").StringValue() != "ok" || !job.Lookup("payload").IsZero() {
				t.Errorf("kept %s", job)
			}
		}
		if more := claim(t, s, 5); len(more) != 0 {
			t.Errorf("%d more", len(more))
		}
	})
}

func TestHigherClassesGoFirstAndTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	var jobs []core.Job
	add := func(name, tenant string, p core.Priority) {
		j := mail(name)
		j.Tenant, j.Priority = tenant, p
		jobs = append(jobs, j)
	}
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
		add(name, "a", core.Normal)
	}
	add("b1", "b", core.Normal)
	add("b0", "b", core.High)
	add("c1", "c", core.Low)
	add("n1", "", core.Normal)
	enqueue(t, s, jobs...)
	got := payloads(claimAs(t, s, core.ClaimRequest{Max: 7, Tenants: []string{"", "a", "b", "c"}}))
	if want := []string{"b0", "n1", "a1", "b1", "a2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	got = payloads(claimAs(t, s, core.ClaimRequest{Max: 7, Tenants: []string{"a"}, FromRank: 1}))
	if want := []string{"a5", "a6"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}
