package sinktest

import (
	"testing"
)

// rule is one subtest.
type rule struct {
	name string
	run  func(t *testing.T, d Destination)
}

// rules in the order in which they build upon one another. Their names are
// part of what the package promises.
var rules = []rule{
	{"EmptyCall", emptyCall},
	{"ConfirmedIsThere", confirmedIsThere},
	{"OneResultPerLease", oneResultPerLease},
	{"OrderWithinKey", orderWithinKey},
	{"BadEventFailsAlone", badEventFailsAlone},
	{"KeyStopsAtFirstFailure", keyStopsAtFirstFailure},
	{"BadEventStopsOnlyLaterOnes", badEventStopsOnlyLaterOnes},
	{"CapabilitiesAreHonoured", capabilitiesAreHonoured},
	{"ConcurrentUse", concurrentUse},
	{"NothingIsKept", nothingIsKept},
	{"UnavailableIsClassified", unavailableIsClassified},
	{"ReturnsByTheDeadline", returnsByTheDeadline},
	{"EndedContextSendsNothing", endedContextSendsNothing},
	{"CancelledCallTellsTheTruth", cancelledCallTellsTheTruth},
	{"CloseTwice", closeTwice},
	{"CloseUnderLoad", closeUnderLoad},
	{"NoGoroutineIsLeft", noGoroutineIsLeft},
}

// Run runs all rules, one after the other.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.run(t, h.New(t)) })
	}
}
