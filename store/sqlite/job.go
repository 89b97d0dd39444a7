package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// jobColumns are the columns of a job but its payload, in the order of
// storedJob.fields.
const jobColumns = "seq, id, " + eventColumns + `, sink, rank, dedup_key, state, attempts, max_attempts, redeliveries, redelivered,
	redriven, discarded, enqueued_at, available_at, token, owner, claimed_at, lease_until, failure_code, failure_reason, failed_at,
	result, finished_at, expire_at, cursor, position, holds`

// storedJob is a job as a row has it.
type storedJob struct {
	storedEvent

	seq                                     int64
	id, sink, dedupKey, owner, result       string
	rank                                    sql.NullInt64
	state                                   core.JobState
	attempts, maxAttempts, redeliveries     int
	redelivered, redriven, discarded, holds bool
	enqueuedAt, availableAt                 int64
	claimedAt, leaseUntil, failedAt         sql.NullInt64
	finishedAt, expireAt                    sql.NullInt64
	token, position                         sql.NullInt64
	cursor                                  sql.NullString
	failure                                 core.Failure
	payloadBytes                            int
}

// fields are what a row of jobColumns is scanned into.
func (j *storedJob) fields() []any {
	return append(append([]any{&j.seq, &j.id}, j.storedEvent.fields()...),
		&j.sink, &j.rank, &j.dedupKey, &j.state, &j.attempts, &j.maxAttempts, &j.redeliveries, &j.redelivered,
		&j.redriven, &j.discarded, &j.enqueuedAt, &j.availableAt, &j.token, &j.owner, &j.claimedAt, &j.leaseUntil,
		&j.failure.Code, &j.failure.Reason, &j.failedAt, &j.result, &j.finishedAt, &j.expireAt, &j.cursor, &j.position, &j.holds)
}

// scan reads a row of jobColumns and the payload, or its size.
func (j *storedJob) scan(rows *sql.Rows, last any) error {
	if err := rows.Scan(append(j.fields(), last)...); err != nil {
		return err
	}
	if j.ID == "" {
		j.ID = j.id // of one that a program in another language wrote
	}
	return nil
}

// priority is the class of the job. One of a cursor has none.
func (j *storedJob) priority() core.Priority {
	if !j.rank.Valid {
		return core.Normal
	}
	return core.Priority(j.rank.Int64 - int64(core.Normal.Rank())) //nolint:gosec // 0 to 2
}

// waitsSince is when the job was there and due.
func (j *storedJob) waitsSince() time.Time {
	return time.UnixMilli(max(j.availableAt, j.enqueuedAt)).UTC()
}

// ref is Claimed.Ref.
type ref struct{ seq, token int64 }

// claimed shows a lent job to its worker.
func (s *Store) claimed(ctx context.Context, j *storedJob, deadline time.Time) *core.Claimed {
	err := s.decode(ctx, &j.storedEvent, true)
	if _, damaged := err.(*DecodeError); damaged { //nolint:errorlint // an error of the codec says by itself whether it is for good
		err = core.MarkRejected(err)
	}
	return &core.Claimed{
		ID: j.id,
		Lease: core.Lease{
			Event: j.Event, Deadline: deadline, Attempt: j.attempts + 1,
			Redelivered: j.redelivered, Redriven: j.redriven, Source: s.cfg.Source,
		},
		Sink: j.sink, Priority: j.priority(), MaxAttempts: j.maxAttempts, Redeliveries: j.redeliveries,
		EnqueuedAt: time.UnixMilli(j.enqueuedAt).UTC(), AvailableAt: j.waitsSince(), ClaimedAt: timeOf(j.claimedAt),
		Err: err, Ref: ref{j.seq, j.token.Int64},
	}
}

// info shows a job to people.
func (j *storedJob) info() core.JobInfo {
	info := core.JobInfo{
		ID: j.id, EventID: j.ID, Aggregate: j.Aggregate, AggregateID: j.AggregateID, Type: j.Type,
		Tenant: j.Tenant, CorrelationID: j.CorrelationID, Sink: j.sink, Cursor: j.cursor.String, State: j.state,
		Priority: j.priority(), Attempts: j.attempts, MaxAttempts: j.maxAttempts, Redeliveries: j.redeliveries,
		DedupKey: j.dedupKey, EnqueuedAt: time.UnixMilli(j.enqueuedAt).UTC(), AvailableAt: j.waitsSince(),
		FinishedAt: timeOf(j.finishedAt), ExpireAt: timeOf(j.expireAt), Failure: j.failure, FailedAt: timeOf(j.failedAt),
		Result: j.result, PayloadBytes: j.payloadBytes, Holds: j.holds && j.state == core.JobFailed,
	}
	if j.state == core.JobActive {
		info.LeaseUntil, info.Owner = timeOf(j.leaseUntil), j.owner
	}
	return info
}

// jobsBy are the jobs that a condition selects, without their payloads.
func jobsBy(ctx context.Context, q querier, condition string, args ...any) ([]*storedJob, error) {
	var jobs []*storedJob
	err := each(ctx, q, func(rows *sql.Rows) error {
		j := &storedJob{}
		jobs = append(jobs, j)
		return j.scan(rows, &j.payloadBytes)
	}, "SELECT "+jobColumns+", coalesce(length(CAST(payload AS BLOB)), 0) FROM outbox_jobs WHERE "+condition, args...)
	if err != nil {
		return nil, fmt.Errorf("reading jobs: %w", err)
	}
	return jobs, nil
}
