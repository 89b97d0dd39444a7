package core

import (
	"errors"
	"fmt"
	"time"
)

// Job is one event for one sink, with its delivery settings. Jobs are lent one
// by one to any number of workers, in no promised order among themselves. Its
// store gives it an id, which also becomes the event's where that is empty.
type Job struct {
	Event
	// Sink is the name of the sink that delivers the job. Required, at most
	// MaxNameBytes.
	Sink string
	// Priority is the class. Defaults to Normal.
	Priority Priority
	// NotBefore delays the job until this time. Zero means at once.
	NotBefore time.Time
	// DedupKey makes a second Enqueue under the same key and tenant a
	// duplicate for as long as the first job is kept. Optional, at most
	// MaxKeyBytes.
	DedupKey string
	// MaxAttempts is how often the job is tried before it is failed. Defaults
	// to DefaultMaxAttempts.
	MaxAttempts int
}

// Defaults of jobs.
const (
	DefaultMaxAttempts     = 10
	DefaultMaxRedeliveries = 5
	DefaultJobLease        = 60 * time.Second
	// TakeBackGrace is how long after its end a job's lease is taken back: the
	// clocks of a replica set's members may differ at a fail-over.
	TakeBackGrace = 5 * time.Second
	// DefaultCompletedRetention is how long completed jobs are kept: the time
	// in which their DedupKey makes another job a duplicate.
	DefaultCompletedRetention = 24 * time.Hour
	// DefaultFailedRetention is how long failed jobs that were enqueued are
	// kept. Those of a cursor are kept until a person decides.
	DefaultFailedRetention = 7 * 24 * time.Hour
)

// Priority is a job's class. Lower classes get one claim in ten while higher
// ones have work.
type Priority int8

// The priorities. The zero value is Normal.
const (
	High   Priority = -1
	Normal Priority = 0
	Low    Priority = 1
)

var priorityNames = map[Priority]string{High: "high", Normal: "normal", Low: "low"}

func (p Priority) String() string {
	if s, ok := priorityNames[p]; ok {
		return s
	}
	return fmt.Sprintf("priority(%d)", int8(p))
}

// ParsePriority reads "high", "normal", "low", or "" for Normal.
func ParsePriority(s string) (Priority, error) {
	if s == "" {
		return Normal, nil
	}
	for p, name := range priorityNames {
		if name == s {
			return p, nil
		}
	}
	return Normal, fmt.Errorf("priority %q is none of high, normal, low", s)
}

// Rank orders the classes: 0 is the first to go. Stores keep it as a number.
func (p Priority) Rank() int { return int(p) + 1 }

// ErrInvalidJob is matched by every error that Job.Validate returns.
var ErrInvalidJob = errors.New("invalid job")

// Validate reports every problem of the job at once, as FieldErrors joined
// under ErrInvalidJob, or nil. maxBytes is the limit of the event's Size; 0
// means DefaultMaxEventBytes. Unlike an event of the log, a job needs no
// AggregateID.
func (j *Job) Validate(maxBytes int) error {
	var errs []error
	if j.Sink == "" {
		errs = append(errs, &FieldError{Field: "Sink", Problem: "is empty: name the sink that delivers the job"})
	}
	if err := checkText("Sink", j.Sink, MaxNameBytes); err != nil {
		errs = append(errs, err)
	}
	if err := checkText("DedupKey", j.DedupKey, MaxKeyBytes); err != nil {
		errs = append(errs, err)
	}
	if err := checkTime("NotBefore", j.NotBefore); err != nil {
		errs = append(errs, err)
	}
	if _, ok := priorityNames[j.Priority]; !ok {
		errs = append(errs, &FieldError{Field: "Priority", Problem: "is none of High, Normal, Low"})
	}
	if j.MaxAttempts < 0 {
		errs = append(errs, &FieldError{Field: "MaxAttempts", Problem: "is negative"})
	}
	e := j.Event
	if e.AggregateID == "" {
		e.AggregateID = "-"
	}
	if err := e.Validate(maxBytes); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidJob, errors.Join(errs...))
}

// JobState is where a job is in its life.
type JobState string

// The states: ready → active → completed, failed or unknown. A retry and a
// release go back to ready.
const (
	// JobReady: due now, or from its available_at on.
	JobReady JobState = "ready"
	// JobActive: lent to a worker until its lease ends.
	JobActive JobState = "active"
	// JobCompleted: delivered, and kept for a while for deduplication.
	JobCompleted JobState = "completed"
	// JobFailed: given up, with its reason, until a person retries or discards
	// it or its retention ends.
	JobFailed JobState = "failed"
	// JobUnknown: may have been delivered; a person or a policy decides.
	JobUnknown JobState = "unknown"
)

// Final tells that a job in this state no longer moves by itself.
func (s JobState) Final() bool {
	return s == JobCompleted || s == JobFailed || s == JobUnknown
}

// Receipt tells what became of one job that was enqueued.
type Receipt struct {
	// ID of the job, the existing one's for a duplicate.
	ID string
	// Duplicate: a job of the same tenant and DedupKey exists; nothing was
	// written.
	Duplicate bool
	// State is the existing job's state, for a duplicate: one that is failed
	// will not go out.
	State JobState
	// Mismatch: the existing job has another content.
	Mismatch bool
}
