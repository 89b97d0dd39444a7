// Package memory is the reference model of a store: a core.Log in one process's
// memory, small enough to be read in one sitting. Nothing survives the process.
// It is there for tests: of a relay, of a program that appends events, and of
// other stores, which package storetest compares with it.
//
// It keeps the promises of a log. Events exist exactly when their transaction
// committed, are read in commit order by any number of cursors, and each
// cursor's writes are fenced by its holder's term. It starts no goroutines and
// waits on channels and timers alone, so it works inside testing/synctest.
package memory
