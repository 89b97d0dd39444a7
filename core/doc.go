// Package core holds what every part of Outbox speaks of: the Event that a
// program writes in its transaction, the Lease under which a relay hands it to
// a Sink, the Result that the sink answers, and the small interfaces at which
// relay and stores meet.
//
// The promise behind these types: an event exists exactly when the transaction
// that wrote it committed; it reaches every sink routed to it at least once;
// events of one key reach a sink in the order in which their transactions
// committed, once repeated ids are dropped; and what cannot be delivered is
// kept as failed, with its reason.
//
// The package imports the standard library only.
package core
