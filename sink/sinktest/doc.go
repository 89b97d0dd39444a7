// Package sinktest is the conformance suite of sinks. A sink that passes Run
// keeps what core.Sink asks for:
//
//	func TestSink(t *testing.T) {
//		sinktest.Run(t, sinktest.Harness{
//			New: func(t testing.TB) sinktest.Destination { … },
//		})
//	}
//
// Each rule is a named subtest with a destination of its own. Read back from
// the real service, never from the sink's own memory: a rule is about what
// arrived. The least harness opens the sink and reads back; the package's example
// is one. Each further field brings rules into play, and a rule whose field is
// empty is skipped with the reason:
//
//	TooLarge         BadEventFailsAlone, KeyStopsAtFirstFailure, HugeEventHarmsNoOther
//	Spoil            BadEventStopsOnlyLaterOnes
//	Reject           RejectedForGood
//	Refuse           RefusedForNow, OrderThroughFailures
//	Cut              UnavailableIsClassified
//	Freeze           ReturnsByTheDeadline
//	Steps            LostAnswerIsUnknown, NoRetryInside, CrashPoints
//
// What a sink declares (core.Capabilities) is held against it, and what it
// doesn't declare as well: without PrefixPerKey a call holds one event of a key;
// without NoRepeat an event that comes again has to be delivered; MaxBatch is
// what is useful, so that a larger call must work too; a destination without an
// order is declared in Destination.Unordered.
//
// CrashPoints breaks each step of a sink before, during and after it, and counts
// what arrives twice: the worst case that the sink's documentation may promise.
// Where the real service can't be broken at a chosen moment, run the suite a
// second time against a scripted server that speaks its protocol.
//
// Run compares goroutines before and after, so the test that calls it must not
// be parallel. Run it with -race: a sink that keeps an event after Deliver
// returned then shows as a data race.
package sinktest
