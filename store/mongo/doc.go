// Package mongo keeps the outbox in MongoDB: events are inserted in the
// application's own transaction, and read in commit order by any number of
// named cursors.
//
// What it promises:
//   - An event exists exactly when the transaction that appended it committed.
//   - A cursor reads every committed event at least once, in commit order,
//     whatever dies in between; lost change stream history is made good by a
//     scan that repeats some events and loses none.
//   - Every write of a cursor's holder is conditional on its fence, so that a
//     holder that was replaced writes nothing.
//   - Clocks of clients decide nothing: leases, fences and positions are made
//     by the server.
//
// Reads go to the primary with majority read concern and writes wait for the
// majority, whatever the connection string says. A transaction that the caller
// started keeps its own concern; InTransaction sets majority.
//
// On a standalone mongod, which has neither transactions nor change streams,
// events are polled and marked by published_at, for a single cursor.
package mongo
