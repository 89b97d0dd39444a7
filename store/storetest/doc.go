// Package storetest is the conformance suite of stores: every rule that a relay
// and its users rely on is a named subtest, which a store that keeps the rule
// passes and one that breaks it fails.
//
// A store's own test describes the store by a Harness and runs the suite:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			New: func(t *testing.T) storetest.Store { return newStore(t) },
//		})
//	}
//
// Run tests the log, and the queue where the Harness has one; RunQueue tests
// the queue alone. Broken stores, each of which must fail exactly the rules
// named for it, test the suite itself.
//
// The rules that need more than a store can do by itself, such as a document
// that no event can be read from, need the matching field of the Harness; their
// subtests are skipped without it, and name the field.
//
// The suite runs on real clocks and real servers. It waits for events, never for
// time to pass, except where a lease has to run out. Its subtests run in
// parallel, each on a store of its own.
package storetest
