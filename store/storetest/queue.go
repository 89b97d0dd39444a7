package storetest

import (
	"context"
	"testing"

	"github.com/gooutbox/outbox/core"
)

// Queue is what the suite tests of a store's queue.
type Queue interface {
	core.Queue
	// Enqueue adds jobs in the transaction that ctx carries, and returns a
	// receipt for each.
	Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error)
}

// RunQueue tests the queue of a store alone. Each rule is a subtest
// "Group/Rule". Harness.Queue is required.
func RunQueue(t *testing.T, h Harness) {
	if h.Queue == nil {
		t.Fatal("storetest: Harness.Queue is required")
	}
	run(t, h, []group{
		{"Enqueue", enqueueRules()},
		{"JobValidation", jobValidationRules()},
		{"Dedup", dedupRules()},
		{"Claim", claimRules()},
		{"ClaimOrder", claimOrderRules()},
		{"Extend", extendRules()},
		{"Settle", settleRules()},
		{"StaleHolder", staleHolderRules()},
		{"TakeBack", takeBackRules()},
		{"Due", dueRules()},
		{"Pause", pauseRules()},
		{"Watch", watchRules()},
		{"CleanJobs", cleanJobsRules()},
		{"Operator", operatorRules()},
		{"Parking", parkingRules()},
		{"Clock", clockRules()},
		{"QueueHistory", queueHistoryRules()},
	})
}

// RunParking tests the rules of parked jobs alone, which RunQueue includes.
// Harness.Queue is required.
func RunParking(t *testing.T, h Harness) {
	if h.Queue == nil {
		t.Fatal("storetest: Harness.Queue is required")
	}
	run(t, h, []group{{"Parking", parkingRules()}})
}

var (
	administering = ability("Admin", func(h Harness) bool { return h.Admin != nil })
	inspecting    = ability("Job or Admin", func(h Harness) bool { return h.Job != nil })
	elapsing      = ability("Elapse", func(h Harness) bool { return h.Elapse != nil })
	skewing       = ability("Skewed", func(h Harness) bool { return h.Skewed != nil })
	puttingJobs   = ability("PutJob", func(h Harness) bool { return h.PutJob != nil })
)

// queueRule is a rule that works with jobs.
func queueRule(name string, check func(*queueKit), needs ...need) rule {
	return rule{name: name, needs: needs, check: func(k *kit) { check(newQueueKit(k)) }}
}
