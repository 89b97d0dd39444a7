// Package trial puts the promise on trial: a Workload commits transactions that
// write business documents and events, a Relay process brings the events to
// Kafka while it is killed, a Collector reads all that Kafka holds, and Check
// compares what arrived with what was committed.
//
// What counts as committed is read from the database at the end, from a ledger
// that each transaction writes beside its events. An acknowledgement proves
// nothing: a commit whose answer was lost has happened all the same.
//
// The demo and the tests of the project share it.
package trial
