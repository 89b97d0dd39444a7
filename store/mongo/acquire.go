package mongo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// acquireTries bounds how often an acquisition is repeated that met another
// one at the same cluster time.
const acquireTries = 5

// Acquire makes the caller the holder of a cursor. It is safe to repeat after
// an error. See core.Log.
func (s *Store) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	if req.Name == "" || req.Owner == "" {
		return nil, errors.New("acquiring a cursor: a name and an owner are needed")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultCursorLease
	}
	if req.Lease < time.Millisecond {
		return nil, fmt.Errorf("acquiring cursor %q: a lease of %s is too short", req.Name, req.Lease)
	}
	if req.Start.At.After(time.Now().Add(time.Minute)) {
		return nil, fmt.Errorf("acquiring cursor %q: its start %s lies in the future", req.Name, req.Start.At.Format(time.RFC3339))
	}
	if err := s.checkLayout(ctx); err != nil {
		return nil, err
	}
	c, err := s.acquire(ctx, req)
	if err != nil {
		if _, held := errors.AsType[*core.HeldError](err); held {
			return nil, err
		}
		return nil, fmt.Errorf("acquiring cursor %q: %w", req.Name, err)
	}
	s.metrics.takeover.Add(ctx, 1, s.cursorAttributes(req.Name))
	return c, nil
}

func (s *Store) acquire(ctx context.Context, req core.AcquireRequest) (*cursor, error) {
	server, err := s.deployment(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.CheckLog(ctx); errors.Is(err, ErrUnfitLog) {
		return nil, err
	}
	poll, err := s.polls(ctx)
	if err != nil {
		return nil, err
	}
	margin, err := s.margin(ctx)
	if err != nil {
		return nil, err
	}
	if poll {
		if err := s.onlyCursor(ctx, req.Name); err != nil {
			return nil, err
		}
	}
	if !server.set {
		s.warnOnce(ctx, "this server is a standalone: it has no transactions and no snapshots, so events are exact and in order "+
			"only where each is a single insert; start mongod with --replSet for the full promise")
	}
	doc, sent, err := s.take(ctx, req, server, poll)
	if err != nil {
		return nil, err
	}
	crash.Here("mongo.takeover")
	c := newCursor(s, req, doc, sent, margin, poll)
	if !doc.Pass.IsZero() {
		if err := c.passOver(ctx); err != nil {
			return nil, err
		}
	}
	c.reader = newReader(s, readerConfig{
		doc: c.doc, poll: poll, margin: margin, queued: c.isQueued, behind: c.isBehind, recovering: c.loadJobs,
	})
	// Only after the fence was raised is the set of jobs complete: the former
	// holder can park nothing more.
	if err := c.loadJobs(ctx, jobsFrom(doc, margin)); err != nil {
		return nil, err
	}
	return c, nil
}

// jobsFrom is the place from which on events may be read again, whose jobs the
// holder must know.
func jobsFrom(doc cursorDoc, margin time.Duration) bson.Timestamp {
	from := doc.Position.Time
	if doc.Scan != nil {
		from = earlier(from, doc.Scan.At)
	}
	return before(from, margin)
}

// onlyCursor refuses a second cursor on a log that is polled.
func (s *Store) onlyCursor(ctx context.Context, name string) error {
	var other struct {
		Name string `bson:"_id"`
	}
	err := s.cursors.FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: name}}}},
		options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Decode(&other)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return fmt.Errorf("looking for other cursors: %w", err)
	}
	return fmt.Errorf("%w, and %q exists: delete its document from %s if it no longer runs", ErrTooManyCursors, other.Name, s.cursors.Name())
}

// take writes the cursor document. sent is this process's time before the write
// that counted was sent.
func (s *Store) take(ctx context.Context, req core.AcquireRequest, server deployment, poll bool) (cursorDoc, time.Time, error) {
	for range acquireTries {
		if !server.set {
			if err := s.advanceClock(ctx); err != nil {
				return cursorDoc{}, time.Time{}, err
			}
		}
		term := uuid.NewString()
		sent := time.Now()
		raw, err := s.cursors.FindOneAndUpdate(ctx,
			bson.D{{Key: "_id", Value: req.Name}},
			takePipeline(req, term, poll, server.set),
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After),
		).Raw()
		var doc cursorDoc
		switch {
		case hasCode(err, codeDuplicateKey):
			continue // two processes created the cursor at once
		case err != nil:
			return cursorDoc{}, time.Time{}, s.updateRefused(ctx, req.Name, err)
		}
		if doc, err = s.decodeCursor(raw); err != nil {
			return cursorDoc{}, time.Time{}, err
		}
		switch {
		case doc.Term == term:
			return doc, sent, nil
		case doc.Owner != req.Owner && doc.Owner != "":
			return cursorDoc{}, time.Time{}, &core.HeldError{Cursor: req.Name, Owner: doc.Owner, Revision: revisionOf(doc)}
		}
		// The fence is not behind the cluster time: another acquisition was made
		// at the same time.
	}
	return cursorDoc{}, time.Time{}, errors.New("its fence is not behind the cluster's time; if the database was restored " +
		"from another cluster, delete the cursor's document or wait until the clock has caught up")
}

// revisionOf names a state of the cursor's document.
func revisionOf(doc cursorDoc) string {
	return strconv.FormatUint(numberOf(doc.Fence), 16) + "-" + strconv.FormatInt(doc.Revision, 10)
}

// takePipeline changes the document only if the cursor is free. A pipeline sees
// the server's own time, and the fence rises with the cluster's.
func takePipeline(req core.AcquireRequest, term string, poll, set bool) bson.A {
	isNew := op("$eq", bson.A{op("$type", "$fence"), "missing"})
	free := bson.A{
		isNew,
		op("$in", bson.A{"$owner", bson.A{"", literal(req.Owner)}}),
		op("$lte", bson.A{"$lease_until", "$$NOW"}),
	}
	if fence, revision, ok := parseRevision(req.Unchanged); ok {
		free = append(free, op("$and", bson.A{
			op("$eq", bson.A{"$fence", fence}), op("$eq", bson.A{"$revision", revision}),
		}))
	}
	may := op("$and", bson.A{
		op("$or", free),
		op("$gt", bson.A{"$$CLUSTER_TIME", op("$ifNull", bson.A{"$fence", bson.Timestamp{}})}),
	})
	taken := bson.D{
		{Key: "owner", Value: literal(req.Owner)},
		{Key: "term", Value: term},
		{Key: "fence", Value: "$$CLUSTER_TIME"},
		{Key: "lease_until", Value: leaseFromNow(req.Lease)},
		{Key: "revision", Value: op("$add", bson.A{op("$ifNull", bson.A{"$revision", int64(0)}), int64(1)})},
		{Key: "fruitless", Value: op("$add", bson.A{op("$ifNull", bson.A{"$fruitless", 0}), 1})},
	}
	if req.Sink != "" {
		taken = append(taken, bson.E{Key: "sink", Value: literal(req.Sink)})
	}
	return bson.A{op("$replaceWith", op("$cond", bson.A{
		may,
		op("$mergeObjects", bson.A{
			op("$cond", bson.A{isNew, newCursorFields(req.Start, poll, set), bson.D{}}),
			"$$ROOT",
			taken,
		}),
		"$$ROOT",
	}))}
}

// newCursorFields are those of a cursor that begins. They say where, so that a
// crash right after loses nothing.
func newCursorFields(start core.Start, poll, set bool) bson.D {
	position := bson.D{{Key: "time", Value: bson.Timestamp{}}, {Key: "ordinal", Value: int64(0)}}
	fields := bson.D{{Key: "settled", Value: int64(0)}}
	switch {
	case start.Now:
		position[0].Value = "$$CLUSTER_TIME"
		if poll {
			name := "from"
			if set {
				// A poll goes by seq, the time of the insert, and a transaction that is
				// open now has its inserts behind it.
				name = "pass"
			}
			fields = append(fields, bson.E{Key: name, Value: "$$CLUSTER_TIME"})
		}
	case !start.At.IsZero():
		fields = append(fields, bson.E{Key: "from", Value: bson.Timestamp{T: uint32(max(0, start.At.Unix()))}}) //nolint:gosec // until 2106
	}
	if !start.Now {
		fields = append(fields, bson.E{Key: "scan", Value: literal(scanState{First: true, Published: start.IncludePublished})})
	}
	return append(fields, bson.E{Key: "position", Value: position})
}

func parseRevision(s string) (fence bson.Timestamp, revision int64, ok bool) {
	var n uint64
	if _, err := fmt.Sscanf(s, "%x-%d", &n, &revision); err != nil {
		return bson.Timestamp{}, 0, false
	}
	return timestampOf(n), revision, true
}

// advanceClock makes the cluster time of a standalone known and rising: it
// keeps it by the empty timestamps that are inserted.
func (s *Store) advanceClock(ctx context.Context) error {
	id := bson.NewObjectID()
	if _, err := s.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "clock", Value: bson.Timestamp{}}}); err != nil {
		return fmt.Errorf("advancing the server's clock: %w", err)
	}
	if _, err := s.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
		return fmt.Errorf("advancing the server's clock: %w", err)
	}
	return nil
}

// op is one operator of a query or pipeline.
func op(name string, value any) bson.D { return bson.D{{Key: name, Value: value}} }

// literal keeps a pipeline from reading a value as an expression.
func literal(value any) bson.D { return op("$literal", value) }

// leaseFromNow is the end of a lease by the server's clock.
func leaseFromNow(lease time.Duration) bson.D {
	return op("$add", bson.A{"$$NOW", lease.Milliseconds()})
}
