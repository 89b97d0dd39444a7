// Package relay brings the events of a log to sinks.
//
// A Relay runs one cursor per Route. It promises that every event of the log
// that a route matches reaches the route's sink at least once, whatever dies in
// between, and that events of one key reach it in the order of the log once
// repeated ids are dropped. It never saves a position beyond an event that was
// neither delivered nor durably made a job, and never calls a sink with two
// events of one key in two calls at the same time. An event that failed for good
// leaves the order, unless the route holds its key, see FailurePolicy.
//
// Several processes may run the same routes: one holds a cursor, the others
// stand by and take over when it dies or stops. At most Route.Window events are
// repeated after a take-over.
//
// What becomes of an event that a sink did not take is decided here alone: a
// sink answers one result per event and never retries, see core.Outcome. While
// all is well the relay logs one line when it gets a cursor, and nothing more.
package relay
