package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// openFields are what a holder must know of an open job. due is in milliseconds
// from the server's present time on.
var openFields = bson.D{
	{Key: "event_id", Value: 1},
	{Key: "aggregate_id", Value: 1},
	{Key: "position", Value: 1},
	{Key: "state", Value: 1},
	{Key: "open", Value: 1},
	{Key: "attempts", Value: 1},
	{Key: "failure", Value: 1},
	{Key: "reference", Value: 1},
	{Key: "due", Value: op("$subtract", bson.A{
		op("$cond", bson.A{
			op("$eq", bson.A{"$state", core.JobActive}),
			op("$add", bson.A{dateIn("lease_until", "$$NOW"), core.TakeBackGrace.Milliseconds()}),
			dateIn("available_at", "$$NOW"),
		}),
		"$$NOW",
	})},
}

// OpenJobs lists the jobs that are still to be delivered or hold their key, see
// core.Cursor. It reads those alone, by an index in which a job stays where it
// is while it is open. The key of an event that was too large to be copied is
// that of the log, as long as the event is there.
func (c *cursor) OpenJobs(ctx context.Context) ([]core.OpenJob, error) {
	jobs, err := c.openJobs(withoutSession(ctx))
	if err != nil {
		return nil, fmt.Errorf("listing the open jobs of cursor %q: %w", c.doc.Name, err)
	}
	return jobs, nil
}

func (c *cursor) openJobs(ctx context.Context) ([]core.OpenJob, error) {
	var found *mongo.Cursor
	err := c.store.withHint(ctx, openIndex, func(hint any) (err error) {
		found, err = c.store.jobs.Find(ctx, bson.D{{Key: "cursor", Value: c.doc.Name}, {Key: "open", Value: true}},
			options.Find().SetHint(hint).SetProjection(openFields))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	var jobs []core.OpenJob
	var cut []int
	var references []bson.RawValue
	for found.Next(ctx) {
		o, reference := openJobOf(found.Current)
		if !reference.IsZero() && mayBeCut(o.Key) {
			cut, references = append(cut, len(jobs)), append(references, reference)
		}
		jobs = append(jobs, o)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	for i, reference := range references {
		key, err := c.store.keyOfReferred(ctx, reference)
		if err != nil {
			return nil, err
		}
		jobs[cut[i]].Key = cmp.Or(key, jobs[cut[i]].Key)
	}
	slices.SortFunc(jobs, func(a, b core.OpenJob) int {
		return cmp.Or(a.Position.Compare(b.Position), cmp.Compare(a.ID, b.ID))
	})
	return jobs, nil
}

// openJobOf reads an open job, and what it refers to if it does.
func openJobOf(raw bson.Raw) (core.OpenJob, bson.RawValue) {
	var j readJob
	var key, event string
	var due time.Duration
	els := walk(raw)
	for els.next() {
		switch name := string(els.name); name {
		case "event_id":
			event, _ = textOf(els.value)
		case "aggregate_id":
			key, _ = textOf(els.value)
		case "due":
			ms, _ := wholeOf(els.value)
			due = time.Duration(max(min(ms, math.MaxInt64/int64(time.Millisecond)), math.MinInt64/int64(time.Millisecond))) * time.Millisecond
		default:
			j.field(name, els.value)
		}
	}
	o := core.OpenJob{
		ID: jobName(j.id), EventID: cmp.Or(event, jobName(j.id)), Key: key, State: j.state, Attempts: j.attempts, Ref: j.id,
		Failure: core.Failure{Code: j.failure.Code, Reason: j.failure.Reason},
	}
	if t, i, ok := j.positionTime.TimestampOK(); ok {
		ordinal, _ := wholeOf(j.positionOrdinal)
		o.Position = core.Position{Time: numberOf(bson.Timestamp{T: t, I: i}), Ordinal: uint64(max(0, ordinal))} //nolint:gosec // not negative
	}
	if !j.state.Final() {
		o.Due = due
	}
	return o, j.reference
}

// mayBeCut tells that refer may have made this of another key.
func mayBeCut(key string) bool {
	return len(key) > core.MaxKeyBytes-utf8.UTFMax || strings.ContainsRune(key, utf8.RuneError)
}

// errNotOpen: a job that OpenJobs or Park of this store did not give.
var errNotOpen = errors.New("a job that another store listed, or none")

// ClaimJobs lends ready jobs of the cursor, see core.Cursor, in two round trips,
// and one more for each event that was too large to be copied: it is read from
// the log. One that is gone there has an Err that is rejected.
//
// Like Claim it lends nothing where the majority did not acknowledge it.
func (c *cursor) ClaimJobs(ctx context.Context, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
	claimed, err := c.claimJobs(withoutSession(ctx), jobs, lease)
	if err != nil {
		return nil, fmt.Errorf("claiming jobs of cursor %q: %w", c.doc.Name, err)
	}
	return claimed, nil
}

func (c *cursor) claimJobs(ctx context.Context, jobs []core.OpenJob, length time.Duration) ([]*core.Claimed, error) {
	if length <= 0 {
		length = core.DefaultJobLease
	}
	if length < time.Millisecond {
		return nil, fmt.Errorf("a lease of %s is too short", length)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	ids := make(bson.A, len(jobs))
	for i, o := range jobs {
		id, ok := o.Ref.(bson.RawValue)
		if !ok {
			return nil, errNotOpen
		}
		ids[i] = id
	}
	s, token, sent := c.store, newToken(), time.Now()
	res, err := s.jobs.UpdateMany(ctx, bson.D{
		{Key: "_id", Value: op("$in", ids)}, {Key: "state", Value: core.JobReady}, {Key: "cursor", Value: c.doc.Name},
	}, append(lending(core.ClaimRequest{Owner: c.doc.Owner, Lease: length}, token), op("$unset", "bell")), options.UpdateMany().SetHint(byID))
	if err != nil {
		s.undoAll(ctx, ids, token, err)
		return nil, err
	}
	if res.ModifiedCount == 0 {
		return nil, nil
	}
	docs, err := s.won(ctx, ids, token)
	if err != nil {
		return nil, err
	}
	claimed := make([]*core.Claimed, len(docs))
	for i, raw := range docs {
		j := s.decodeJob(ctx, raw)
		if err := s.readReferred(ctx, &j); err != nil {
			s.undoAll(ctx, ids, token, nil)
			return nil, err
		}
		claimed[i] = s.claimed(&j, &lease{id: j.id, token: token, parked: true}, j.claimedAt, sent.Add(length))
		claimed[i].Lease.Route, claimed[i].Lease.Fence = c.doc.Name, numberOf(c.doc.Fence)
	}
	return claimed, nil
}
