// Package dedupetest is the conformance suite of the stores of consumer/dedupe:
// every rule that a guard relies on is a named subtest, which a store that keeps
// the rule passes and one that breaks it fails.
//
//	func TestStore(t *testing.T) {
//		dedupetest.Run(t, func(t *testing.T) dedupe.Store { return newStore(t) })
//	}
//
// Each rule has a store of its own. The suite waits for events, never for time
// to pass, except where a lease has to run out: give the store as little grace
// as it allows. The broken stores that test the suite are in its own tests.
package dedupetest
