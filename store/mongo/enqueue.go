package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// Enqueue adds jobs to the queue in the transaction that ctx carries: all of
// them or, with an error, none. It returns a receipt for each, in their order.
// The rules are those of Append. jobs themselves are not changed.
//
// A job with a DedupKey has an id that is made of the configured namespace, its
// tenant and the key. Where a job with that id is kept, it is left as it is, and
// the receipt tells of the duplicate; also one that the same transaction
// enqueued. Transactions that enqueue under one key at the same time conflict,
// and the driver runs the later ones again.
//
// The transaction goes on when the error is core.ErrNoTransaction,
// ErrOtherClient, or matches core.ErrInvalidJob.
//
// It takes one round trip for jobs without a key, one for those with one, and
// another where some of these are duplicates.
func (s *Store) Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error) {
	receipts, err := s.enqueue(ctx, jobs)
	if err != nil {
		return nil, fmt.Errorf("enqueuing jobs: %w", err)
	}
	return receipts, nil
}

func (s *Store) enqueue(ctx context.Context, jobs []core.Job) ([]core.Receipt, error) {
	running, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	if !running && !s.cfg.AllowNoTransaction {
		return nil, core.ErrNoTransaction
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	if err := s.validateJobs(jobs); err != nil {
		return nil, err
	}
	if err := s.checkLayout(ctx); err != nil {
		return nil, err
	}
	e, err := s.newEnqueuing(ctx, jobs)
	if err != nil {
		return nil, err
	}
	if running {
		err = e.write(ctx)
	} else {
		err = e.writeAlone(withoutSession(ctx))
	}
	if err != nil {
		if t, ok := ctx.Value(transactionKey{}).(*transaction); ok && t.failed == nil {
			t.failed = fmt.Errorf("enqueuing jobs: %w", err)
		}
		return nil, err
	}
	s.metrics.enqueued.Add(ctx, int64(len(jobs)-e.duplicates), s.logAttributes())
	return e.receipts, nil
}

// validateJobs reports all problems of all jobs.
func (s *Store) validateJobs(jobs []core.Job) error {
	var errs []error
	for i := range jobs {
		err := jobs[i].Validate(s.cfg.MaxEventBytes)
		if err != nil && len(jobs) > 1 {
			err = fmt.Errorf("job %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// enqueuing is one Enqueue.
type enqueuing struct {
	store *Store
	// token tells the jobs of this call from those that exist.
	token bson.Binary
	// plain are the documents of jobs without a dedup key.
	plain []bson.Raw
	// keyed are those with one, and places their indexes among the receipts.
	keyed      []keyedJob
	receipts   []core.Receipt
	duplicates int
}

type keyedJob struct {
	id      bson.Binary
	doc     bson.Raw
	hash    contentHash
	receipt int
}

func (s *Store) newEnqueuing(ctx context.Context, jobs []core.Job) (*enqueuing, error) {
	e := &enqueuing{store: s, token: newToken(), receipts: make([]core.Receipt, len(jobs))}
	trace := s.traceHeaders(ctx)
	now, enqueued := s.queue.now(), s.serverTime(ctx)
	for i, job := range jobs {
		id, err := s.jobID(&job)
		if err != nil {
			return nil, err
		}
		hash := s.hashJob(&job)
		if job.OccurredAt.IsZero() {
			job.OccurredAt = now
		}
		job.Headers = withTrace(job.Headers, trace)
		doc, err := s.jobDocument(ctx, &job, id, hash, e.token, enqueued)
		if err != nil {
			return nil, err
		}
		e.receipts[i].ID = id.String()
		if job.DedupKey == "" {
			e.plain = append(e.plain, doc)
		} else {
			e.keyed = append(e.keyed, keyedJob{id: uuidValue(id), doc: doc, hash: hash, receipt: i})
		}
	}
	return e, nil
}

// jobID is the id of a new job: by its key if it has one.
func (s *Store) jobID(job *core.Job) (uuid.UUID, error) {
	if job.DedupKey != "" {
		return dedupID(s.cfg.IDNamespace, job.Tenant, job.DedupKey), nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return id, fmt.Errorf("making a job's id: %w", err)
	}
	return id, nil
}

// dedupID is the UUIDv5 of tenant and key, with a zero byte between them, in
// the namespace, which is itself the UUIDv5 of its name among URLs. Neither
// tenant nor key holds a zero byte.
func dedupID(namespace, tenant, key string) uuid.UUID {
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte(namespace))
	return uuid.NewSHA1(space, []byte(tenant+"\x00"+key))
}

func newToken() bson.Binary { return uuidValue(uuid.New()) }

// jobDocument is the stored form of a new job. Its payload is sealed where a
// codec is configured.
func (s *Store) jobDocument(ctx context.Context, job *core.Job, id uuid.UUID, hash contentHash, token bson.Binary, enqueued time.Time) (bson.Raw, error) {
	e := job.Event
	if e.ID == "" {
		e.ID = id.String()
	}
	payload, codec, keyID, err := s.seal(ctx, &e)
	if err != nil {
		return nil, err
	}
	rank := int32(job.Priority.Rank()) //nolint:gosec // 0 to 2
	doc := storedJob{
		ID: uuidValue(id), Aggregate: e.Aggregate, AggregateID: e.AggregateID, Type: e.Type,
		Payload: &storedPayload{Data: payload}, ContentType: e.ContentType, Version: e.Version,
		AggregateVersion: e.AggregateVersion, Headers: sortedHeaders(e.Headers), Tenant: e.Tenant,
		OccurredAt: cutTime(e.OccurredAt), CorrelationID: e.CorrelationID, Codec: codec, KeyID: keyID,
		Sink: job.Sink, Priority: job.Priority.String(), Rank: &rank, DedupKey: job.DedupKey,
		Hash: hash.sum, HashKey: hash.key,
		State: core.JobReady, MaxAttempts: orDefault(job.MaxAttempts, core.DefaultMaxAttempts),
		AvailableAt: time.Unix(0, 0).UTC(), Seq: bson.RawValue{Type: bson.TypeTimestamp, Value: make([]byte, 8)}, EnqueuedAt: cutTime(enqueued),
	}
	if e.ID != id.String() {
		doc.EventID = e.ID
	}
	if !job.NotBefore.IsZero() {
		doc.NotBefore = ceilTime(job.NotBefore)
		doc.AvailableAt = doc.NotBefore
	}
	if job.DedupKey != "" {
		doc.Token = &token
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding job %s: %w", id, err)
	}
	if len(raw) > maxDocumentBytes {
		return nil, fmt.Errorf("%w: %w", core.ErrInvalidJob, &core.FieldError{
			Field: core.WholeEvent, Problem: "is too large as it is stored", Limit: maxDocumentBytes, Size: len(raw),
		})
	}
	return raw, nil
}

// ceilTime is the first stored date that is not before t.
func ceilTime(t time.Time) time.Time {
	cut := cutTime(t)
	if cut.Before(t) {
		cut = cut.Add(time.Millisecond)
	}
	return cut
}

// writeAlone writes outside a transaction of the caller's: in one of its own
// where the server has them, so that receipts are exact.
func (e *enqueuing) writeAlone(ctx context.Context) error {
	d, err := e.store.deployment(ctx)
	switch {
	case err != nil:
		return err
	case len(e.keyed) == 0:
		return e.write(ctx)
	case d.set:
		_, err := e.store.transact(ctx, e.write)
		return err
	}
	// $$CLUSTER_TIME is known on a standalone only after this.
	if err := e.store.advanceClock(ctx); err != nil {
		return err
	}
	return e.write(ctx)
}

// write may be called again when its transaction is run again.
func (e *enqueuing) write(ctx context.Context) error {
	if len(e.plain) > 0 {
		if _, err := e.store.jobs.InsertMany(ctx, e.plain); err != nil {
			return err
		}
	}
	if len(e.keyed) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(e.keyed))
	for i, job := range e.keyed {
		models[i] = mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(bson.D{{Key: "_id", Value: job.id}}).SetUpdate(insertUnlessKept(job.doc))
	}
	res, err := e.store.jobs.BulkWrite(ctx, models)
	if err != nil {
		return err
	}
	return e.tellDuplicates(ctx, res.UpsertedIDs)
}

// insertUnlessKept is the update of an upsert: it makes the document of one
// that doesn't exist, or whose time is over, and changes no other.
func insertUnlessKept(doc bson.Raw) bson.A {
	isNew := op("$eq", bson.A{"$$ROOT", bson.D{{Key: "_id", Value: "$_id"}}})
	over := op("$and", bson.A{
		op("$eq", bson.A{op("$type", "$expire_at"), "date"}),
		op("$lte", bson.A{"$expire_at", "$$NOW"}),
	})
	return bson.A{op("$replaceWith", op("$cond", bson.A{
		op("$or", bson.A{isNew, over}),
		op("$mergeObjects", bson.A{literal(doc), bson.D{
			{Key: "seq", Value: "$$CLUSTER_TIME"},
			{Key: "enqueued_at", Value: "$$NOW"},
		}}),
		"$$ROOT",
	}))}
}

// tellDuplicates completes the receipts of jobs with a key. inserted are those
// whose document did not exist.
func (e *enqueuing) tellDuplicates(ctx context.Context, inserted map[int64]any) error {
	e.duplicates = 0
	ids := bson.A{}
	for i, job := range e.keyed {
		r := &e.receipts[job.receipt]
		*r = core.Receipt{ID: r.ID}
		if _, ok := inserted[int64(i)]; !ok {
			ids = append(ids, job.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	kept, err := e.kept(ctx, ids)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, job := range e.keyed {
		r := &e.receipts[job.receipt]
		there := kept[r.ID]
		_, written := inserted[int64(i)]
		// Or it took the place of one whose time was over.
		written = written || !seen[r.ID] && there.Token.Equal(e.token)
		seen[r.ID] = true
		if !written {
			r.Duplicate, r.State = true, there.State
			r.Mismatch = there.hash().differs(job.hash)
			e.duplicates++
		}
	}
	return nil
}

// keptJob is what a receipt tells of an existing job.
type keptJob struct {
	ID      bson.RawValue `bson:"_id"`
	State   core.JobState `bson:"state"`
	Token   bson.Binary   `bson:"token"`
	Hash    *bson.Binary  `bson:"hash"`
	HashKey string        `bson:"hash_key"`
}

func (k keptJob) hash() contentHash { return contentHash{k.Hash, k.HashKey} }

func (e *enqueuing) kept(ctx context.Context, ids bson.A) (map[string]keptJob, error) {
	found, err := e.store.jobs.Find(ctx, bson.D{{Key: "_id", Value: op("$in", ids)}}, options.Find().SetProjection(bson.D{
		{Key: "state", Value: 1}, {Key: "token", Value: 1}, {Key: "hash", Value: 1}, {Key: "hash_key", Value: 1},
	}))
	if err != nil {
		return nil, err
	}
	var jobs []keptJob
	if err := found.All(ctx, &jobs); err != nil {
		return nil, err
	}
	kept := make(map[string]keptJob, len(jobs))
	for _, job := range jobs {
		kept[jobName(job.ID)] = job
	}
	return kept, nil
}
