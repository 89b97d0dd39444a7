// Package memory is the reference model of a store: a core.Log, a core.Queue and
// a core.Admin in one process's memory, small enough to be read in one sitting.
// Nothing survives the process. It is there for tests: of a relay, of a program
// that appends events or enqueues jobs, and of other stores, which package
// storetest compares with it.
//
// It keeps the promises of a log and of a queue. Events and jobs exist exactly
// when their transaction committed. Events are read in commit order by any
// number of cursors, and each cursor's writes are fenced by its holder's term.
// Jobs are lent to one worker at a time, and what a worker writes is fenced by
// the token of its lease. It starts no goroutines and waits on channels and
// timers alone, so it works inside testing/synctest.
package memory
