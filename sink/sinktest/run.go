package sinktest

import (
	"testing"
)

// rule is one subtest.
type rule struct {
	name string
	run  func(t *testing.T, d Destination)
	// runAll, in place of run, is for rules that need several destinations.
	runAll func(t *testing.T, h Harness)
}

// rules in the order in which they build upon one another. Their names are
// part of what the package promises.
var rules = []rule{
	{name: "EmptyCall", run: emptyCall},
	{name: "ConfirmedIsThere", run: confirmedIsThere},
	{name: "OneResultPerLease", run: oneResultPerLease},
	{name: "OrderWithinKey", run: orderWithinKey},
	{name: "BadEventFailsAlone", run: badEventFailsAlone},
	{name: "KeyStopsAtFirstFailure", run: keyStopsAtFirstFailure},
	{name: "BadEventStopsOnlyLaterOnes", run: badEventStopsOnlyLaterOnes},
	{name: "CapabilitiesAreHonoured", run: capabilitiesAreHonoured},
	{name: "LargeCall", run: largeCall},
	{name: "HugeEventHarmsNoOther", run: hugeEventHarmsNoOther},
	{name: "RejectedForGood", run: rejectedForGood},
	{name: "RefusedForNow", run: refusedForNow},
	{name: "OrderThroughFailures", run: orderThroughFailures},
	{name: "RepeatsAreAsDeclared", run: repeatsAreAsDeclared},
	{name: "ConcurrentUse", run: concurrentUse},
	{name: "NothingIsKept", run: nothingIsKept},
	{name: "UnavailableIsClassified", run: unavailableIsClassified},
	{name: "ReturnsByTheDeadline", run: returnsByTheDeadline},
	{name: "EndedContextSendsNothing", run: endedContextSendsNothing},
	{name: "CancelledCallTellsTheTruth", run: cancelledCallTellsTheTruth},
	{name: "LostAnswerIsUnknown", runAll: lostAnswerIsUnknown},
	{name: "NoRetryInside", runAll: noRetryInside},
	{name: "CrashPoints", runAll: crashPoints},
	{name: "CloseTwice", run: closeTwice},
	{name: "CloseUnderLoad", run: closeUnderLoad},
	{name: "NoGoroutineIsLeft", run: noGoroutineIsLeft},
}

// Run runs all rules, one after the other.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if r.runAll != nil {
				r.runAll(t, h)
				return
			}
			r.run(t, h.New(t))
		})
	}
}
