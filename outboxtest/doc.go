// Package outboxtest is for unit tests of programs that publish events or
// enqueue jobs. It needs no server.
//
// A Recorder takes the place of a store: what a transaction appended or enqueued
// is there when the transaction committed, and never existed when it did not. A
// Sink answers by a script and remembers what it was given. Drain brings
// everything that is due to its sinks, as a relay does, and returns: a test
// needs neither sleeps nor timers.
//
// Programs depend on the methods that they call, not on a store:
//
//	type Outbox interface {
//		InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
//		Append(ctx context.Context, events ...core.Event) error
//	}
package outboxtest
