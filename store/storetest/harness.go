package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Store is what the suite tests. A store whose Append takes its transaction in
// another way is wrapped by an adapter that carries it in the context.
type Store interface {
	core.Log
	// InTransaction runs fn in a transaction and commits it if fn returns nil.
	// It may run fn again after a conflict with another transaction.
	InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
	// Append adds events in the transaction that ctx carries.
	Append(ctx context.Context, events ...core.Event) error
}

// Harness describes a store to the suite.
type Harness struct {
	// New returns an empty store that shares nothing with earlier ones, and
	// frees it by t.Cleanup. Required.
	New func(t *testing.T) Store
	// Second returns another handle on the data of s, as another process would
	// have it. Defaults to s itself.
	Second func(t *testing.T, s Store) Store
	// Count adds one to a number that the store keeps for key, in the
	// transaction that ctx carries, and returns the new value: the write to a
	// common document that serializes the transactions of a key. Errors that
	// make InTransaction try again must be returned as they are.
	Count func(ctx context.Context, s Store, key string) (int64, error)
	// Put adds documents one after the other, as a producer in another language
	// would: without Append.
	Put func(ctx context.Context, s Store, docs ...Document) error
	// Failed returns what the named cursor parked, in any order.
	Failed func(ctx context.Context, s Store, cursor string) ([]Failed, error)
	// LoseToken makes the stored place of a released cursor in the change
	// stream useless, so that its next term has to recover. A store that can't
	// lose its place does nothing here.
	LoseToken func(ctx context.Context, s Store, cursor string) error
	// BreakRead makes a Read of s that is under way, or else the next one, fail
	// once, as a lost connection would.
	BreakRead func(ctx context.Context, s Store) error

	// Queue returns the queue of a handle. The rules of queues need it.
	Queue func(s Store) Queue
	// Admin returns what operators use of a handle.
	Admin func(s Store) core.Admin
	// Job returns one job, or an error that matches core.ErrNoJob. Defaults to
	// that of Admin.
	Job func(ctx context.Context, s Store, id string) (core.JobInfo, error)
	// Elapse lets time pass for jobs and pauses: the store's clock goes on by
	// d, or each time that the store keeps of them goes back by d. It is called
	// beside other operations, too.
	Elapse func(ctx context.Context, s Store, d time.Duration) error
	// Skewed returns another handle on the data of s, of a process whose own
	// clock is ahead of all others by d, or behind when d is negative.
	Skewed func(t *testing.T, s Store, d time.Duration) Store
	// PutJob adds a job that can't be decoded, but for its sink.
	PutJob func(ctx context.Context, s Store, sink string) error

	// Traits are what the store can't do.
	Traits Traits
	// MaxEventBytes is the store's limit of Event.Size. Defaults to
	// core.DefaultMaxEventBytes.
	MaxEventBytes int
	// Lease is the lease that the suite lets run out. Defaults to 500 ms.
	Lease time.Duration
	// Timeout bounds each subtest. Defaults to one minute.
	Timeout time.Duration
	// Operations is the length of the random test. Defaults to 200.
	Operations int
	// Races is how many jobs are settled and taken back at the same time.
	// Defaults to 1,000.
	Races int
	// Seed repeats a random test. Defaults to a new one, which is logged.
	Seed uint64
}

// Traits are what a store declares it can't do. The suite leaves out the rules
// that follow, and tests all others.
type Traits struct {
	// NoTransactions: Append works without a transaction, and InTransaction
	// can't take back what its function did.
	NoTransactions bool
	// OneCursor: settled events are known by a mark on them. So there is one
	// cursor and no second, no Start lets it read published events, and Clean
	// names no cursor for events that aren't marked.
	OneCursor bool
	// OneWriter: a transaction that writes keeps all others from writing until
	// it ends.
	OneWriter bool
}

// Document is what Harness.Put adds.
type Document struct {
	// Event's fields as they are to be stored.
	Event core.Event
	// Age is how long ago the document was written, by the store's clock. Only
	// documents that are put before the first cursor is acquired have one, each
	// younger than the one before.
	Age time.Duration
	// Published documents are marked as published.
	Published bool
	// Undecodable documents have the Event's ID, and nothing else that makes an
	// event.
	Undecodable bool
}

// Failed is a parked event as the store keeps it.
type Failed struct {
	// Event that failed. Only its ID is looked at when it was undecodable.
	Event    core.Event
	Sink     string
	Attempts int
	Failure  core.Failure
}

func (h Harness) withDefaults() Harness {
	if h.Second == nil {
		h.Second = func(_ *testing.T, s Store) Store { return s }
	}
	if h.MaxEventBytes <= 0 {
		h.MaxEventBytes = core.DefaultMaxEventBytes
	}
	if h.Lease <= 0 {
		h.Lease = 500 * time.Millisecond
	}
	if h.Timeout <= 0 {
		h.Timeout = time.Minute
	}
	if h.Operations <= 0 {
		h.Operations = 200
	}
	if h.Races <= 0 {
		h.Races = 1000
	}
	if h.Job == nil && h.Admin != nil {
		h.Job = func(ctx context.Context, s Store, id string) (core.JobInfo, error) { return h.Admin(s).Job(ctx, id) }
	}
	if h.Seed == 0 {
		h.Seed = uint64(time.Now().UnixNano())
	}
	return h
}
