package dedupe

import (
	"context"
	"errors"
	"time"
)

// Store keeps what a Guard remembers. Its methods may be called by several
// goroutines and processes at once. Times are the store's own; a duration
// counts from its now.
//
// Errors that tell that the store can't be reached are marked by
// core.MarkUnavailable.
type Store interface {
	// Transaction runs fn, and commits what fn did through its context and
	// through tx: all of it if fn returned nil, else nothing. It is durable when
	// Transaction returns nil. fn runs again when it conflicts with another
	// transaction. The error of fn comes back as it is, or wrapped.
	Transaction(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error

	// Reserve takes the key for token until the lease ends, if the key has
	// neither been marked nor is reserved. One whose lease ran out becomes
	// Unknown where req.Report is set, else the caller's. A repeated call with
	// the same token finds what the first one did.
	Reserve(ctx context.Context, req ReserveRequest) (Reservation, error)
	// Renew makes the lease end a lease from now. ErrLost: it is not token's any
	// more, and nothing was written. One that ran out and that nobody took since
	// is still token's.
	Renew(ctx context.Context, key Key, token string, lease time.Duration) error
	// Finish marks the reserved key for the retention. It also resolves one that
	// became Unknown meanwhile. Repeated, it changes nothing. ErrLost as in
	// Renew.
	Finish(ctx context.Context, key Key, token string, retention time.Duration) error
	// Release gives the reservation back: the key is as if it never was reserved,
	// or, with again, as if its lease had run out now. A key that token doesn't
	// hold is left alone.
	Release(ctx context.Context, key Key, token string, again bool) error
	// Doubt makes the reservation Unknown. ErrLost as in Renew.
	Doubt(ctx context.Context, key Key, token string) error

	// Unknowns lists the consumer's unknown events, at most limit of them.
	Unknowns(ctx context.Context, consumer string, limit int) ([]Unknown, error)
	// Resolve marks an unknown event for the retention, or makes it as if it
	// never was delivered. ErrNotUnknown: it isn't unknown.
	Resolve(ctx context.Context, key Key, done bool, retention time.Duration) error
}

// Tx is what Store.Transaction offers to its function. It is used by one
// goroutine, during the function only.
type Tx interface {
	// Mark marks keys for the retention and tells of each whether it was not
	// marked before. The keys differ from each other. It takes at most two
	// commands for any number of keys, and a key that was marked before doesn't
	// spoil the transaction.
	Mark(keys []Key, retention time.Duration) (fresh []bool, err error)
	// Raise keeps the highest version of a subject, and returns what it was
	// before; known is false if there was none. retention 0 keeps it for ever.
	Raise(subject Subject, version int64, retention time.Duration) (before int64, known bool, err error)
	// Fences keeps the highest fence of each lane and returns what it is then, in
	// their order. A lane may come twice.
	Fences(lanes []Lane, retention time.Duration) ([]uint64, error)
}

// Key is one event for one consumer.
type Key struct{ Consumer, EventID string }

// Subject is one aggregate as a consumer sees it.
type Subject struct{ Consumer, Aggregate, AggregateID string }

// Lane is one key of a route as a consumer sees it. Fence is that of the
// delivery at hand.
type Lane struct {
	Consumer, Route, AggregateID string
	Fence                        uint64
}

// ReserveRequest asks for a reservation.
type ReserveRequest struct {
	Key Key
	// Token is unique to the call.
	Token string
	// Lease is how long the reservation lasts.
	Lease time.Duration
	// Retention is how long the reservation of a process that died is kept.
	Retention time.Duration
	// Report makes a reservation whose lease ran out Unknown.
	Report bool
}

// Reservation is the answer.
type Reservation struct {
	State State
	// After is when a Busy key may be free: from now.
	After time.Duration
	// Again: the reservation was another's before, whose lease ran out; that one
	// may have had the effect.
	Again bool
}

// State is what Reserve found.
type State uint8

// The states of a key.
const (
	// Reserved: the key is the caller's.
	Reserved State = iota + 1
	// Busy: another holds it.
	Busy
	// Marked: the effect took place.
	Marked
	// Doubtful: the effect may have taken place; a person decides.
	Doubtful
)

// Unknown is an event whose effect may have taken place.
type Unknown struct {
	EventID string
	// Since is when that was found, by the store's clock.
	Since time.Time
}

// Errors of stores and guards.
var (
	// ErrLost: the reservation ran out and another consumer has it, or had it.
	ErrLost = errors.New("the reservation was lost to another consumer")
	// ErrNotUnknown: there is nothing to resolve.
	ErrNotUnknown = errors.New("the event is not unknown to this consumer")
)
