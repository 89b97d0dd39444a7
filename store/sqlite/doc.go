// Package sqlite keeps the outbox in the SQLite file that a program keeps its
// data in: events and jobs are written in the program's own *sql.Tx, and read by
// relays in the same process or in others on the same machine. No server and no
// cgo are needed: the driver is modernc.org/sqlite.
//
// What it promises:
//   - An event or job exists exactly when the transaction that wrote it
//     committed.
//   - A cursor reads every committed event at least once, in commit order.
//     SQLite has one writer at a time, which holds its lock from its first write
//     to the end of its transaction. Ids are given under that lock, so they rise
//     in the order of the commits, and once an id is seen no lower one can
//     appear.
//   - Every write of a cursor's holder is conditional on its owner and fence,
//     that of a job's holder on the token of its lease.
//   - What a call of the store returned as done is on the disk (WAL with
//     synchronous=FULL). For transactions of the program's own connections that
//     holds when they have the settings of DSN.
//
// The database's clock is that of the machine, read by SQLite in the statement
// that needs it: all processes that share a file run on one machine, and so
// agree. Leases and due times go by it alone. A step of that clock moves all of
// them; set it back by an hour, and a lease of a dead process runs an hour
// longer. A standby takes a cursor over all the same, when it saw it unchanged
// for a whole lease on its own monotonic clock.
//
// The file must be on a local disk: WAL needs memory that processes share.
package sqlite
