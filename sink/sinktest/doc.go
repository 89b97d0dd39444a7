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
// arrived.
//
// Run compares goroutines before and after, so the test that calls it must not
// be parallel. Run it with -race: a sink that keeps an event after Deliver
// returned then shows as a data race.
package sinktest
