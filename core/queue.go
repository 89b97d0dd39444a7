package core

import (
	"context"
	"time"
)

// Queue is what a relay needs of a store to lend jobs to its sinks. All times
// are the store's: a worker's wrong clock can neither steal nor lose a lease.
// Its methods may be called by several goroutines at once.
type Queue interface {
	// Claim lends up to req.Max due jobs of one sink. What it returns is
	// durable: no other worker holds those jobs until their leases end. Fewer
	// than asked for, or none, is no error.
	//
	// Higher classes go first; within a class the jobs that were due from the
	// beginning in the order of their enqueuing, then the others by when they
	// fell due. Jobs of a cursor are never among them: its holder delivers
	// those.
	Claim(ctx context.Context, req ClaimRequest) ([]*Claimed, error)
	// Extend gives the jobs a whole lease again, counted from now. It returns
	// those whose lease was lost; stop delivering them. A lease that ran out,
	// but that nobody has taken back, is not lost, here and for Settle. A job
	// that was settled stays so.
	Extend(ctx context.Context, jobs []*Claimed, lease time.Duration) (lost []*Claimed, err error)
	// Settle writes what became of claimed jobs, in few round trips. lost are
	// those whose lease had moved on: nothing was written for them. Settling
	// again after an error is safe: a job that this lease has settled already,
	// however, is left as it is and is not lost, unless a person has retried it
	// since it ended.
	Settle(ctx context.Context, settlements []Settlement) (lost []*Claimed, err error)
	// TakeBack makes jobs whose lease ended more than TakeBackGrace ago ready
	// again, or ends them as the request says. A lease that ran out counts as a
	// redelivery, not as an attempt. An error of Reservations is returned, and
	// leaves the jobs that it was asked about to a later call.
	TakeBack(ctx context.Context, req TakeBackRequest) (TakeBackResult, error)
	// Tenants lists tenants that have ready jobs of the sink, due or not,
	// at most limit of them, in a stable order after the given one. "" stands
	// for the jobs without a tenant and comes first; after "" is the beginning,
	// so ask for two at least.
	Tenants(ctx context.Context, sink, after string, limit int) ([]string, error)
	// NextDue tells how long until the earliest ready job of the sink is due:
	// 0 if one is, and false if there is none.
	NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error)
	// Pauses lists the pauses that are in force.
	Pauses(ctx context.Context) ([]Pause, error)
	// Pause puts a pause in force for the whole fleet. It never shortens one
	// that is in force, nor touches an operator's unless it is one itself. An
	// operator's pause of a target makes the target's pause an operator's.
	Pause(ctx context.Context, p Pause) error
	// Resume ends the pause of a target; ending none is no error.
	Resume(ctx context.Context, target PauseTarget) error
	// Watch calls wake for each change that may make a job due: an enqueue, a
	// retry (settled or by hand), a release, a pause set or ended; not for
	// claims, extensions and jobs that end. It also calls wake once when it has
	// begun: what changed before is not told. It blocks until ctx ends or
	// watching fails, and returns ErrNoWatch where the store has no such means.
	Watch(ctx context.Context, wake func(Wake)) error
	// CleanJobs removes failed jobs whose retention ended and that hold no
	// key, and counts them. Jobs that ended as unknown stay.
	CleanJobs(ctx context.Context) (removed int64, err error)
}

// ClaimRequest says which jobs a worker wants.
type ClaimRequest struct {
	// Sink whose jobs are wanted. Required.
	Sink string
	// Max is the largest number of jobs. Required.
	Max int
	// Lease is how long the worker may hold them. Defaults to DefaultJobLease.
	Lease time.Duration
	// Owner is the worker's name, for people who ask who has a job.
	Owner string
	// Tenants restricts the claim and takes them in turn within each class.
	// nil means any tenant, without turns.
	Tenants []string
	// FromRank leaves out higher classes: 1 claims normal and low jobs, 2 low
	// ones.
	FromRank int
	// Spread is where this worker starts among the due jobs, so that workers
	// that claim at the same time don't pick the same ones: 0 is the head.
	Spread int
}

// Claimed is a job that was lent.
type Claimed struct {
	// ID of the job, as people and commands name it.
	ID string
	// Lease is what the sink gets.
	Lease Lease
	// Sink, Priority, MaxAttempts are the job's settings.
	Sink        string
	Priority    Priority
	MaxAttempts int
	// Redeliveries counts the leases that ran out.
	Redeliveries int
	// EnqueuedAt and AvailableAt are the store's times. A job is not available
	// before it was enqueued.
	EnqueuedAt, AvailableAt time.Time
	// ClaimedAt is the store's time of the claim, which may be estimated to
	// within a round trip: AvailableAt to ClaimedAt is how long the job waited.
	ClaimedAt time.Time
	// Err is why the stored job can't be delivered: it can't be decoded, or its
	// payload can't be opened. ResultOf tells whether for good.
	Err error
	// Ref is the store's own handle: the typed id and the token of the lease.
	Ref any
}

// Settlement is what became of a claimed job.
type Settlement struct {
	Job *Claimed
	// Kind says which.
	Kind SettleKind
	// Receipt is stored as the result of a completed job.
	Receipt string
	// Failure is the reason, for Retry, Fail and Unknown.
	Failure Failure
	// Delay is when a retried or released job is due again, from now.
	Delay time.Duration
	// Uncounted: the try doesn't count as an attempt (Retry only).
	Uncounted bool
	// Holds: the failed job holds its key until a person retries or discards it
	// (Fail of a cursor's job only).
	Holds bool
}

// SettleKind is what Settle does with a job.
type SettleKind uint8

// The kinds. All but an uncounted Retry and GiveBack count an attempt.
const (
	// Complete: delivered.
	Complete SettleKind = iota + 1
	// Retry: ready again after Delay. With CodeUnknown as its failure's code the
	// job counts as redelivered from then on.
	Retry
	// Fail: given up.
	Fail
	// EndUnknown: may have been delivered, and must not be sent again by
	// itself.
	EndUnknown
	// GiveBack: not tried; ready again after Delay, as if never claimed.
	GiveBack
)

// TakeBackRequest says how leases that ran out are dealt with.
type TakeBackRequest struct {
	// MaxRedeliveries is how often a job may come back before it is failed as
	// crashed. Defaults to DefaultMaxRedeliveries.
	MaxRedeliveries int
	// Sinks whose jobs are taken back. nil means all. Whoever doesn't know which
	// sinks must not repeat names those that it knows.
	Sinks []string
	// Cursors whose jobs are taken back too, whatever sink they name: their holder
	// delivers them, also after its sink got another name. Needed only beside
	// Sinks.
	Cursors []string
	// NoRepeat are the sinks whose jobs must not be sent again when it isn't
	// known whether they were sent: Reservations decides about them, and
	// without it they end as unknown.
	NoRepeat []string
	// Reservations tells what is known of a NoRepeat job.
	Reservations Reservations
	// Limit bounds one call. Defaults to 1,000.
	Limit int
	// Ended, where not nil, is called before TakeBack returns for each job that it
	// ended, with JobFailed for one that crashed or with JobUnknown. Where others take
	// back, extend or settle jobs at the same time it may also be told of some of
	// theirs: Admin.Job tells what became of one.
	Ended func(jobID string, as JobState)
}

// Reservations knows which jobs of a NoRepeat sink were begun: a reservation
// is written before the first byte is sent.
type Reservations interface {
	// Reserved tells which of the jobs may have been sent.
	Reserved(ctx context.Context, jobIDs []string) (map[string]bool, error)
}

// TakeBackResult counts what TakeBack did.
type TakeBackResult struct {
	Ready, Crashed, Unknown int
}

// PauseScope is the kind of thing that a pause stops.
type PauseScope string

// The scopes.
const (
	PauseSink   PauseScope = "sink"
	PauseTenant PauseScope = "tenant"
	// PauseDomain stops the mails to one domain.
	PauseDomain PauseScope = "domain"
)

// PauseTarget names what is paused.
type PauseTarget struct {
	Scope PauseScope
	// Name of the sink, tenant or domain.
	Name string
}

// Pause stops deliveries of a target until it ends.
type Pause struct {
	PauseTarget
	// For is how long from now on; 0 means until somebody resumes.
	For time.Duration
	// Until is when it ends by the store's clock, in what Pauses returns.
	Until time.Time
	// Reason is a sentence for people.
	Reason string
	// By is the operator who set it; empty where a sink asked for it.
	By string
}

// Wake tells what a change was about. Empty fields mean any; that of an
// enqueue names the sink.
type Wake struct {
	Sink string
}
