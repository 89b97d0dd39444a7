package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// Park writes jobs. Jobs and fence are one transaction; see parkSingly for a
// standalone.
func (c *cursor) Park(ctx context.Context, entries []core.Parked) error {
	if len(entries) == 0 {
		return nil
	}
	jobs, err := c.park(ctx, entries, false)
	if _, refused := errors.AsType[*copyError](err); refused {
		c.store.logger.WarnContext(ctx, "events could not be copied into jobs, references to them are kept",
			"cursor", c.doc.Name, "error", err)
		jobs, err = c.park(ctx, entries, true)
	}
	if err != nil {
		return fmt.Errorf("parking events of cursor %q: %w", c.doc.Name, err)
	}
	for i, job := range jobs {
		id := copyOf(job.Lookup("_id"))
		entries[i].ID, entries[i].Ref = jobName(id), id
		c.addJob(job)
	}
	return nil
}

// park writes the jobs of the entries and returns them.
func (c *cursor) park(ctx context.Context, entries []core.Parked, refer bool) ([]bson.Raw, error) {
	now, err := c.store.now(ctx)
	if err != nil {
		return nil, err
	}
	jobs := make([]bson.Raw, len(entries))
	for i := range entries {
		if jobs[i], err = c.job(ctx, &entries[i], now, refer); err != nil {
			return nil, err
		}
	}
	if !c.store.transacts(ctx) {
		return jobs, c.parkSingly(ctx, inOrderOf(jobs, entries))
	}
	return jobs, c.extending(func() error {
		_, err := c.store.transact(ctx, func(ctx context.Context) error {
			if err := c.update(ctx, nil); err != nil {
				return err
			}
			return c.store.insertJobs(ctx, jobs)
		})
		return err
	})
}

// inOrderOf are the jobs in the order of their events.
func inOrderOf(jobs []bson.Raw, entries []core.Parked) []bson.Raw {
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return entries[a].Entry.Mark.Position().Compare(entries[b].Entry.Mark.Position())
	})
	sorted := make([]bson.Raw, len(jobs))
	for i, n := range order {
		sorted[i] = jobs[n]
	}
	return sorted
}

// parkSingly is the order where there are no transactions. The fence is tested
// before and after: a holder that was replaced in between has left a job, but
// marks nothing, and learns that its term is over. A crash after the jobs leaves
// events that are not marked; the next term knows their jobs.
//
// The jobs become visible one after the other, in the order of their events: who
// sees a job of a key sees those before it. A crash in between leaves the later
// ones out; the next term reads their events again, and parks them behind.
func (c *cursor) parkSingly(ctx context.Context, jobs []bson.Raw) error {
	if err := c.write(ctx, nil); err != nil {
		return err
	}
	if err := c.store.insertJobs(ctx, jobs); err != nil {
		return err
	}
	return c.write(ctx, nil)
}

// insertTries bounds how often jobs are written that a holder which was replaced
// writes at the same time.
const insertTries = 5

// insertJobs writes the jobs that don't exist yet, in their order. A duplicate
// would end a transaction, so it looks first: only the holder parks.
func (s *Store) insertJobs(ctx context.Context, jobs []bson.Raw) error {
	for try := 1; ; try++ {
		err := s.insertMissing(ctx, jobs)
		if try == insertTries || !mongo.IsDuplicateKeyError(err) || mongo.SessionFromContext(ctx) != nil {
			return err
		}
	}
}

func (s *Store) insertMissing(ctx context.Context, jobs []bson.Raw) error {
	ids := make(bson.A, len(jobs))
	for i, job := range jobs {
		ids[i] = job.Lookup("_id")
	}
	found, err := s.jobs.Find(ctx, bson.D{{Key: "_id", Value: op("$in", ids)}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	known := map[string]bool{}
	for found.Next(ctx) {
		known[idKey(found.Current.Lookup("_id"))] = true
	}
	if err := found.Err(); err != nil {
		return err
	}
	var missing []bson.Raw
	for _, job := range jobs {
		if key := idKey(job.Lookup("_id")); !known[key] {
			known[key] = true
			missing = append(missing, job)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = s.jobs.InsertMany(ctx, missing)
	if isServerError(err) && !isTransient(err) && !mongo.IsDuplicateKeyError(err) {
		return &copyError{err}
	}
	return err
}

// copyError tells that the server refused to store jobs: a document can't be
// stored inside another one, for example, when it is nested as deep as the
// server allows.
type copyError struct{ err error }

func (e *copyError) Error() string { return e.err.Error() }
func (e *copyError) Unwrap() error { return e.err }

// job is the stored form of one entry. What can't be copied is referred to.
func (c *cursor) job(ctx context.Context, p *core.Parked, now time.Time, refer bool) (bson.Raw, error) {
	at, err := ownMark(p.Entry.Mark)
	if err != nil {
		return nil, err
	}
	e := &p.Entry.Event
	position := stored(at.pos)
	id := noteOf(at.id)
	job := storedJob{
		ID:      jobID{Log: c.store.log.Name(), Cursor: c.doc.Name, Event: id},
		EventID: e.ID, Aggregate: e.Aggregate, AggregateID: e.AggregateID, Type: e.Type,
		ContentType: e.ContentType, Version: e.Version, AggregateVersion: e.AggregateVersion,
		Headers: sortedHeaders(e.Headers), Tenant: e.Tenant, OccurredAt: e.OccurredAt, CorrelationID: e.CorrelationID,
		Sink: p.Sink, State: orDefault(p.State, core.JobFailed), Attempts: p.Attempts, MaxAttempts: p.MaxAttempts,
		Redelivered: p.Redelivered, EnqueuedAt: now, Cursor: c.doc.Name, Position: &position, Hold: p.Holds,
		Ordered: at.committed && e.AggregateID != "",
	}
	switch job.State {
	case core.JobReady:
		job.AvailableAt, job.Open = now.Add(p.Delay), true
	case core.JobFailed:
		job.FinishedAt, job.Open = now, p.Holds
	default:
		return nil, fmt.Errorf("an event is parked as ready or failed, not as %s", job.State)
	}
	if p.Failure != (core.Failure{}) {
		job.Failure = &storedFailure{Code: p.Failure.Code, Reason: cutReason(p.Failure.Reason), At: now}
	}
	switch {
	case refer:
		job.refer(id)
	case at.raw != nil:
		job.Document = at.raw
	default:
		payload, codec, keyID, err := c.store.seal(ctx, e)
		if err != nil {
			return nil, err
		}
		job.Payload, job.Codec, job.KeyID = &storedPayload{Data: payload}, codec, keyID
	}
	doc, err := bson.Marshal(job)
	if err == nil && len(doc) <= maxDocumentBytes {
		return doc, nil
	}
	if refer {
		// Everything in it is bounded.
		return nil, fmt.Errorf("encoding a reference to an event as a job of %d bytes, limit %d: %w", len(doc), maxDocumentBytes,
			cmp.Or(err, errTooLarge))
	}
	return c.job(ctx, p, now, true)
}

var errTooLarge = errors.New("it is too large")

// refer makes the job point at the event in the log. What it tells of the event
// besides is for people, and cut to the limits that Append has.
func (j *storedJob) refer(id bson.RawValue) {
	j.Reference = id
	j.Headers = nil
	key := j.AggregateID
	j.AggregateID = cutText(key, core.MaxKeyBytes)
	j.Ordered = j.Ordered && j.AggregateID == key
	for _, text := range []*string{&j.EventID, &j.Aggregate, &j.Type, &j.ContentType, &j.Tenant, &j.CorrelationID} {
		*text = cutText(*text, core.MaxNameBytes)
	}
}

// cutReason keeps what the layout allows of a reason, whole characters only.
func cutReason(reason string) string { return cutText(reason, core.MaxReasonBytes) }

// now is the server's time.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := s.db.RunCommand(withoutSession(ctx), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return time.Time{}, fmt.Errorf("asking for the server's time: %w", err)
	}
	return hello.LocalTime, nil
}
