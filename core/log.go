package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Log is what a relay needs of a store: events in commit order, read by any
// number of named cursors. Its methods may be called by several goroutines at
// once.
type Log interface {
	// Source names the log, as the CloudEvents source attribute does:
	// "/outbox/<database>/<collection>".
	Source() string
	// Acquire makes the caller the holder of a cursor, which is created when
	// it doesn't exist. Each call raises the fence, also when the same owner
	// comes again. While another holder's lease runs the error is a
	// *HeldError.
	Acquire(ctx context.Context, req AcquireRequest) (Cursor, error)
	// Clean removes events that are older than the retention and behind every
	// cursor by more than the store's margin.
	Clean(ctx context.Context, req CleanRequest) (CleanResult, error)
	// Lag tells how far the named cursor is behind the end of the log.
	Lag(ctx context.Context, cursor string) (Lag, error)
}

// AcquireRequest says which cursor is wanted, by whom and for how long.
type AcquireRequest struct {
	// Name of the cursor. Required.
	Name string
	// Owner is unique per start of a process. Required.
	Owner string
	// Lease is how long the right lasts after each write of the holder.
	// Defaults to 15 seconds.
	Lease time.Duration
	// Start says where a cursor that doesn't exist yet begins.
	Start Start
	// Sink is the name of the sink that the cursor's events go to, so that Explain
	// knows which pause stops them. Optional.
	Sink string
	// Marking sets published_at on delivered events beside the cursor's
	// position. Stores that can only poll mark in any case.
	Marking bool
	// Unchanged is a HeldError.Revision that the caller has seen for longer
	// than a whole lease, on its own monotonic clock: the store then takes over
	// if the cursor is still exactly so, whatever the database's clock says.
	Unchanged string
}

// DefaultCursorLease is the lease of a cursor where none is configured.
const DefaultCursorLease = 15 * time.Second

// Start says where a new cursor begins. The zero value is the beginning of the
// log, without events that are already marked as published.
type Start struct {
	// Now begins with the events committed from now on.
	Now bool
	// At begins with the events written at or after this time.
	At time.Time
	// IncludePublished also reads events whose published_at is set.
	IncludePublished bool
}

// HeldError tells that another holder has the cursor.
type HeldError struct {
	Cursor, Owner string
	// Revision changes with each write of the holder, see
	// AcquireRequest.Unchanged.
	Revision string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("cursor %q is held by %s", e.Cursor, e.Owner)
}

// Errors of stores. Test with errors.Is.
var (
	// ErrFenced: the caller is no longer the holder; nothing was written.
	// Stop delivering and acquire again.
	ErrFenced = errors.New("the lease was lost to another holder")
	// ErrNoTransaction: the context carries no running transaction of this
	// store.
	ErrNoTransaction = errors.New("no transaction in the context: pass the context that the transaction's function was given")
	// ErrNewerLayout: the stored layout was written by a newer version of
	// Outbox.
	ErrNewerLayout = errors.New("the stored layout is newer than this version of Outbox: upgrade it")
	// ErrNoWatch: the store can't tell of changes; poll.
	ErrNoWatch = errors.New("this store can't watch for changes")
)

// DuplicateIDError tells that an event was not appended because the log already
// holds one with its id. The transaction can't be committed any more.
type DuplicateIDError struct {
	// ID is the id in question, empty where the store can't tell.
	ID string
}

func (e *DuplicateIDError) Error() string {
	return fmt.Sprintf("the log already holds an event with the id %q: leave ID empty to have one assigned", e.ID)
}

// Cursor is one term of a holder: from Acquire until Release or the loss of the
// lease. Read is called by one goroutine at a time; the other methods may be
// called by several at once, also beside Read.
//
// Save, Renew, Suspect and Park are fenced: when another holder has taken over
// they write nothing and return ErrFenced. Each that succeeds extends the lease.
type Cursor interface {
	// Term tells how the cursor was found when it was acquired.
	Term() Term
	// Expires is when the lease ends if nothing more is written: counted on
	// this process's monotonic clock from before the last write was sent.
	Expires() time.Time
	// Read waits for events and returns them in commit order, each of them at
	// least once in a term. When none came for a few seconds it returns an
	// empty batch. An error leaves the cursor usable: call Read again after a
	// backoff, and it goes on where it was. Only the end of ctx and ErrFenced
	// are final.
	Read(ctx context.Context, limit ReadLimit) (Batch, error)
	// Save stores the position of the last of the marks. settled are the marks
	// of all entries that were settled since the last Save, in the order of
	// reading, without a gap.
	Save(ctx context.Context, settled []Mark) error
	// Renew extends the lease.
	Renew(ctx context.Context) error
	// Suspect notes that the entry with this mark is about to be sent alone,
	// after terms that ended without progress. nil takes the note back: the
	// call ended, and this process is still there.
	Suspect(ctx context.Context, m Mark) error
	// Park writes jobs for events that the cursor doesn't deliver itself. It is
	// durable when it returns nil, and must be before a position passes the
	// entries. All of them become visible at once. Parking an entry twice changes
	// nothing. Park sets ID and Ref of each entry.
	Park(ctx context.Context, entries []Parked) error
	// OpenJobs lists the cursor's jobs that are not final, and the failed ones
	// that hold their key, by position. A job that was so all the while that it
	// took is never missing. A holder asks before it sends anything, and again
	// when a person may have changed them.
	OpenJobs(ctx context.Context) ([]OpenJob, error)
	// ClaimJobs lends ready jobs of the cursor to its holder, all under one
	// token, and returns those that it got, in the order of the request; the
	// others are lent to somebody else or final by now. It does not look at when
	// they are due: the holder does. They are settled by Queue.Settle and
	// extended by Queue.Extend like any other job, and taken back when their
	// lease runs out.
	ClaimJobs(ctx context.Context, jobs []OpenJob, lease time.Duration) ([]*Claimed, error)
	// Release ends the term: it stops a Read that is under way and gives the
	// lease back, so that a standby can take over at once. The fence stays. It
	// may be called more than once.
	Release(ctx context.Context) error
}

// Term tells how a cursor was found when it was acquired.
type Term struct {
	// Fence is higher than that of any earlier term of this cursor.
	Fence uint64
	// Position is that of the last event that an earlier term settled. When
	// there is none it is zero, or a place before all that the cursor reads.
	Position Position
	// Fruitless counts the terms since the position last moved that ended
	// without Release: those in which the process may have died.
	Fruitless int
	// SuspectID is the id of the event that the last term noted, and
	// SuspectCount in how many terms in a row it was noted.
	SuspectID    string
	SuspectCount int
}

// Position orders the events of one log; the store defines what its parts
// mean.
type Position struct {
	Time, Ordinal uint64
}

// Compare returns -1, 0 or +1 as p is before, at or after q.
func (p Position) Compare(q Position) int {
	if p.Time != q.Time {
		if p.Time < q.Time {
			return -1
		}
		return 1
	}
	if p.Ordinal != q.Ordinal {
		if p.Ordinal < q.Ordinal {
			return -1
		}
		return 1
	}
	return 0
}

// Mark is a place in the log, made by a store and handed back to it. It keeps
// no payload alive.
type Mark interface {
	Position() Position
}

// ReadLimit bounds one Read.
type ReadLimit struct {
	// Events is the largest number of entries. Defaults to 500.
	Events int
	// Bytes is the largest sum of Entry.Size, except that one entry always
	// fits. Defaults to 8 MiB.
	Bytes int
}

// Defaults of ReadLimit.
const (
	DefaultReadEvents = 500
	DefaultReadBytes  = 8 << 20
)

// OrDefaults returns l with its zero fields set to the defaults.
func (l ReadLimit) OrDefaults() ReadLimit {
	if l.Events <= 0 {
		l.Events = DefaultReadEvents
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultReadBytes
	}
	return l
}

// Batch is what one Read returned.
type Batch struct {
	Entries []Entry
	// Reached, where not nil, is a place that no entry after Entries precedes:
	// once everything read so far is settled it may be saved in place of the
	// last entry's mark. A holder saves it once a minute while it is idle, so
	// that its place in the log doesn't age out.
	Reached Mark
	// SaveSoon asks to save Reached as soon as everything read is settled.
	SaveSoon bool
}

// Entry is one stored event as a cursor reads it.
type Entry struct {
	Event Event
	Mark  Mark
	// Size is about how many bytes the entry keeps in memory.
	Size int
	// CommittedAt is when the event was committed, by the store's clock, as
	// exactly as the store knows. Zero if it doesn't.
	CommittedAt time.Time
	// Queued: the event has a job in some state, and is the queue's; or an event
	// behind it of the same key has one, and this one was settled before that was
	// parked. The cursor must not send it.
	Queued bool
	// Err is why the stored document can't be delivered, if so. Event then
	// holds what could be read of it.
	Err error
}

// Parked is an entry that becomes a job of its cursor. The events of a key whose
// job is open are parked behind it, so that their order is kept.
type Parked struct {
	Entry Entry
	// Sink is the name of the sink that the job is for.
	Sink string
	// State is JobReady for an event that is tried again, and JobFailed, the
	// default, for one that is given up.
	State JobState
	// Delay is when a ready job is due, from now.
	Delay time.Duration
	// Attempts is how often the event was tried so far, and MaxAttempts how
	// often it may be; 0 means DefaultMaxAttempts.
	Attempts, MaxAttempts int
	// Failure is why; empty for an event that only waits behind another one.
	Failure Failure
	// Redelivered: an earlier try may have reached the destination.
	Redelivered bool
	// Holds: the job, once failed, holds its key until a person retries or discards
	// it. A ready one has it for TakeBack, which may end it as crashed; Settle
	// decides anew.
	Holds bool
	// ID and Ref are those of the job, as in OpenJob; Park sets them.
	ID  string
	Ref any
}

// OpenJob is a job of a cursor that is still to be delivered, or that holds its
// key.
type OpenJob struct {
	// ID of the job, as people and commands name it.
	ID string
	// EventID and Key (AggregateID) of its event.
	EventID, Key string
	// Position of the event in the log: the order of a key's jobs.
	Position Position
	// State is JobReady, JobActive or, for one that holds its key, JobFailed.
	State JobState
	// Due is, from now, when a ready job is due or when an active one can have
	// come back at the latest; 0 or less means now.
	Due time.Duration
	// Attempts so far.
	Attempts int
	// Failure is its last one, zero where there was none or the store doesn't tell.
	Failure Failure
	// Ref is the store's own handle.
	Ref any
}

// Failure is the reason why a job is failed.
type Failure struct {
	// Code is one of the Code constants.
	Code string
	// Reason is a sentence for people, without secrets; stores cut it to
	// MaxReasonBytes.
	Reason string
}

// Codes of failures.
const (
	// CodeRejected: the destination refused the event for good.
	CodeRejected = "rejected"
	// CodeRefused: the destination refused the event for now; it is tried again.
	CodeRefused = "refused"
	// CodeExhausted: the event was tried as often as it may be. The reason is the
	// last one.
	CodeExhausted = "exhausted"
	// CodeUnavailable: the destination as a whole takes nothing, or asks to come
	// back later; it is tried again.
	CodeUnavailable = "unavailable"
	// CodeUndecodable: the stored document is no event.
	CodeUndecodable = "undecodable"
	// CodeCrashed: the process ended again and again while it delivered this
	// event alone, or this job.
	CodeCrashed = "crashed"
	// CodeUnknown: the event may have been delivered, and its sink must not
	// repeat it.
	CodeUnknown = "unknown"
)

// MaxReasonBytes is how much of a failure's reason is stored.
const MaxReasonBytes = 2048

// CleanRequest says what a cleaner may remove.
type CleanRequest struct {
	// Retention is the age from which on events may go. Required.
	Retention time.Duration
	// Cursors are names without which nothing is removed: the routes that are
	// configured, of which some may not have started yet.
	Cursors []string
}

// CleanResult tells what a cleaner did.
type CleanResult struct {
	// Removed is the number of events removed.
	Removed int64
	// HeldBy names the cursor that kept older events than the retention
	// alone would have, if one did.
	HeldBy string
}

// Lag is how far a cursor is behind.
type Lag struct {
	// Events that the cursor has still to settle, counted up to a bound of the
	// store's.
	Events int64
	// Age is how long ago the oldest of them was written, 0 if there is none.
	Age time.Duration
}
