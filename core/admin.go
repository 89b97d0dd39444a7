package core

import (
	"context"
	"errors"
	"time"
)

// Admin is what operators ask of a store and tell it. Its methods may be called
// by several goroutines at once, beside running relays. Where nothing of an outbox
// is stored yet they change nothing, create nothing and return ErrNoOutbox.
type Admin interface {
	// Stats counts jobs by state and tells how the cursors stand.
	Stats(ctx context.Context) (Stats, error)
	// Job returns one job. An id that doesn't exist is ErrNoJob.
	Job(ctx context.Context, id string) (JobInfo, error)
	// Jobs lists jobs that match, at most limit of them, oldest first. next is
	// empty after the last page, else what to pass as after for the next one.
	Jobs(ctx context.Context, filter JobFilter, after string, limit int) (jobs []JobInfo, next string, err error)
	// Retry makes final jobs that match ready again: their attempts start anew
	// and they are marked as redriven. Jobs of one key keep their order; their
	// due times are spread over act.Spread. Where the filter names IDs, or the
	// state JobReady, it also makes ready jobs that wait for their time due: they
	// keep their attempts and aren't marked. It returns how many.
	Retry(ctx context.Context, filter JobFilter, act Act) (int64, error)
	// Discard removes jobs that match and are not active. One of a cursor ends as
	// completed instead, and its key goes on. It returns how many.
	Discard(ctx context.Context, filter JobFilter, act Act) (int64, error)
	// PauseBy and ResumeBy are Pause and Resume as an operator's act.
	PauseBy(ctx context.Context, p Pause, act Act) error
	ResumeBy(ctx context.Context, target PauseTarget, act Act) error
	// ForgetCursor removes a cursor that no longer runs, so that it doesn't
	// keep events from being removed. A held one is a *HeldError.
	ForgetCursor(ctx context.Context, name string, act Act) error
	// Acts lists what operators did, newest first.
	Acts(ctx context.Context, limit int) ([]ActRecord, error)
	// Explain tells why an event or job has not gone out. id is that of a job
	// or of a log event. An id that is neither is ErrNoJob.
	Explain(ctx context.Context, id string) (Explanation, error)
}

// Errors of Admin. Test with errors.Is.
var (
	// ErrNoJob: neither a job nor an event has this id.
	ErrNoJob = errors.New("no job and no event has this id")
	// ErrNoOutbox: where the store is to be nothing of an outbox is stored, neither
	// a log nor jobs nor cursors. The connection names another database than was
	// meant, or the outbox was not set up yet. A store that can't be empty in this
	// way never returns it, and Queue and Log don't either.
	ErrNoOutbox = errors.New("there is no outbox here")
)

// Act says who does something, and why: it is recorded with what was done.
type Act struct {
	// By is the operator. Required.
	By string
	// Reason is a sentence.
	Reason string
	// DryRun counts what would be done and writes nothing.
	DryRun bool
	// Spread is over how long the due times of retried jobs are spread.
	Spread time.Duration
}

// ActRecord is one act that was done.
type ActRecord struct {
	At     time.Time
	By     string
	Reason string
	// What was done, such as "retry", and to what.
	What   string
	Target string
	// Count of jobs that it changed.
	Count int64
}

// JobFilter selects jobs; its set fields must all match. The zero value
// selects none, so that no mistake touches everything.
type JobFilter struct {
	// All selects every job, where no other field does.
	All bool
	IDs []string
	// State, or "" for any that the operation allows.
	State JobState
	Sink  string
	// Tenant, Type and Key (AggregateID) of the event.
	Tenant, Type, Key string
	// Cursor whose jobs are wanted.
	Cursor string
	// OlderThan selects jobs that were enqueued longer ago.
	OlderThan time.Duration
	// Code of the failure.
	Code string
}

// JobInfo is a job as people see it, without its payload.
type JobInfo struct {
	ID            string
	EventID       string
	Aggregate     string
	AggregateID   string
	Type          string
	Tenant        string
	CorrelationID string
	Sink          string
	Cursor        string
	State         JobState
	Priority      Priority
	Attempts      int
	MaxAttempts   int
	Redeliveries  int
	DedupKey      string
	EnqueuedAt    time.Time
	AvailableAt   time.Time
	FinishedAt    time.Time
	ExpireAt      time.Time
	LeaseUntil    time.Time
	Owner         string
	Failure       Failure
	FailedAt      time.Time
	Result        string
	PayloadBytes  int
	// Holds: the failed job of a cursor holds its key.
	Holds bool
}

// Stats is how a store stands. Counts are exact as of one moment each.
type Stats struct {
	// At is the store's time.
	At                         time.Time
	Ready, Delayed, Active     int64
	Completed, Failed, Unknown int64
	OldestReady                time.Duration
	Sinks                      []SinkStats
	Pauses                     []Pause
	Cursors                    []CursorInfo
	// LogWindow is how far back the log can be read by a saved place, such as
	// the oplog's span; 0 where there is no such bound.
	LogWindow time.Duration
}

// SinkStats counts the jobs of one sink.
type SinkStats struct {
	Sink                   string
	Ready, Delayed, Active int64
	Failed, Unknown        int64
	OldestReady            time.Duration
}

// CursorInfo is how a cursor stands.
type CursorInfo struct {
	Name, Owner string
	Fence       uint64
	// Held: its lease runs.
	Held bool
	Lag  Lag
	// LagBytes is the size of what it has still to settle, as far as known.
	LagBytes int64
	// PlaceAge is how old its saved place is, against Stats.LogWindow.
	PlaceAge time.Duration
	// Scanning: it reads the log itself, not the stream of changes.
	Scanning bool
	Position Position
	Settled  int64
	// Parked jobs that are open, and failed ones.
	Parked, Failed int64
}

// Explanation says why something has not gone out, the nearest cause first.
type Explanation struct {
	ID string
	// State is a job's, or "delivered", "waiting" for an event of the log.
	State  string
	Causes []Cause
	Job    *JobInfo
}

// Cause is one reason.
type Cause struct {
	// Code names the kind of cause; the constants below.
	Code string
	// Text is the sentence for people: what holds it, until when, what to do.
	Text string
	// Until is when the cause ends by itself, zero if it doesn't.
	Until time.Time
}

// Kinds of causes.
const (
	CauseDelivered = "delivered"
	// CauseDiscarded: a person gave the event up, it was not delivered.
	CauseDiscarded     = "discarded"
	CausePredecessor   = "predecessor"
	CausePaused        = "paused"
	CauseLeased        = "leased"
	CauseBackoff       = "backoff"
	CauseDelayed       = "delayed"
	CauseFailed        = "failed"
	CauseUnknown       = "unknown"
	CauseCursorStopped = "cursor-stopped"
	CauseBehind        = "behind"
	CauseDue           = "due"
)
