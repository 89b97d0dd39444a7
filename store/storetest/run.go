package storetest

import (
	"context"
	"testing"
)

// rule is one named subtest.
type rule struct {
	name string
	// needs are what must be there for the rule to be tested.
	needs []need
	check func(*kit)
}

// need tells what is missing of the harness, or "" when it is there.
type need func(Harness) string

func ability(name string, there func(Harness) bool) need {
	return func(h Harness) string {
		if there(h) {
			return ""
		}
		return "the harness has no " + name
	}
}

func without(trait string, has func(Traits) bool) need {
	return func(h Harness) string {
		if has(h.Traits) {
			return "the store declares " + trait
		}
		return ""
	}
}

var (
	counting     = ability("Count", func(h Harness) bool { return h.Count != nil })
	putting      = ability("Put", func(h Harness) bool { return h.Put != nil })
	failures     = ability("Failed", func(h Harness) bool { return h.Failed != nil })
	losing       = ability("LoseToken", func(h Harness) bool { return h.LoseToken != nil })
	breaking     = ability("BreakRead", func(h Harness) bool { return h.BreakRead != nil })
	transactions = without("NoTransactions", func(t Traits) bool { return t.NoTransactions })
	cursors      = without("OneCursor", func(t Traits) bool { return t.OneCursor })
	writers      = without("OneWriter", func(t Traits) bool { return t.OneWriter })
)

// group is rules about one thing.
type group struct {
	name  string
	rules []rule
}

// Run tests a store: its log, and its queue where the harness has one. Each
// rule is a subtest "Group/Rule".
func Run(t *testing.T, h Harness) {
	run(t, h, logGroups())
	if h.Queue != nil {
		RunQueue(t, h)
	}
}

func logGroups() []group {
	return []group{
		{"Transaction", transactionRules()},
		{"Validation", validationRules()},
		{"RoundTrip", roundTripRules()},
		{"Order", orderRules()},
		{"Start", startRules()},
		{"Lease", leaseRules()},
		{"Fence", fenceRules()},
		{"Release", releaseRules()},
		{"Resume", resumeRules()},
		{"Read", readRules()},
		{"Park", parkRules()},
		{"Poison", poisonRules()},
		{"Clean", cleanRules()},
		{"Lag", lagRules()},
		{"Concurrency", concurrencyRules()},
		{"Model", modelRules()},
	}
}

func run(t *testing.T, h Harness, groups []group) {
	if h.New == nil {
		t.Fatal("storetest: Harness.New is required")
	}
	h = h.withDefaults()
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) { r.run(t, h) })
			}
		})
	}
}

func (r rule) run(t *testing.T, h Harness) {
	t.Parallel()
	for _, n := range r.needs {
		if missing := n(h); missing != "" {
			t.Skip(missing)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), h.Timeout)
	t.Cleanup(cancel)
	store := h.New(t)
	r.check(&kit{T: t, h: h, ctx: ctx, store: store, other: h.Second(t, store)})
}
