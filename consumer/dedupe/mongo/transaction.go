package mongo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

// ErrNested: a guard was called with the context of a running transaction.
var ErrNested = errors.New("called in a transaction: the guard makes its own, and its function gets it")

// Transaction runs fn in a transaction with snapshot reads and majority writes.
// The driver runs fn again after a conflict, and asks again for a commit whose
// answer was lost, for up to two minutes.
func (s *Store) Transaction(ctx context.Context, fn func(context.Context, dedupe.Tx) error) error {
	if outer := mongo.SessionFromContext(ctx); outer != nil && outer.TransactionRunning() {
		return ErrNested
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	session, err := s.client.StartSession()
	if err != nil {
		return fmt.Errorf("starting a session: %w", away(err))
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if err := fn(ctx, &tx{s: s, ctx: ctx, now: now}); err != nil {
			return nil, err
		}
		return nil, nil
	}, options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetReadPreference(readpref.Primary()).SetWriteConcern(writeconcern.Majority()))
	return away(explained(err))
}

// tx is one run of a transaction's function.
type tx struct {
	s   *Store
	ctx context.Context //nolint:containedctx // it is the transaction
	now time.Time
}

// Mark takes one command for one key, and for several a look and an insert.
func (t *tx) Mark(keys []dedupe.Key, retention time.Duration) ([]bool, error) {
	mark := bson.D{{Key: "state", Value: stateDone}, {Key: "expire_at", Value: t.now.Add(retention)}}
	if len(keys) == 1 {
		result, err := t.s.seen.UpdateOne(t.ctx, bson.D{{Key: "_id", Value: id(keys[0])}},
			bson.D{{Key: "$setOnInsert", Value: mark}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return nil, fmt.Errorf("inserting the mark: %w", conflicting(err))
		}
		return []bool{result.UpsertedCount == 1}, nil
	}
	known, err := t.known(keys)
	if err != nil {
		return nil, err
	}
	fresh := make([]bool, len(keys))
	docs := make([]any, 0, len(keys)-len(known))
	for i, key := range keys {
		if _, ok := known[id(key)]; ok {
			continue
		}
		fresh[i] = true
		docs = append(docs, append(bson.D{{Key: "_id", Value: id(key)}}, mark...))
	}
	if len(docs) > 0 {
		if _, err := t.s.seen.InsertMany(t.ctx, docs); err != nil {
			return nil, fmt.Errorf("inserting %d marks: %w", len(docs), conflicting(err))
		}
	}
	return fresh, nil
}

// known returns the ids of those that are marked.
func (t *tx) known(keys []dedupe.Key) (map[string]struct{}, error) {
	ids := make(bson.A, len(keys))
	for i, key := range keys {
		ids[i] = id(key)
	}
	cur, err := t.s.seen.Find(t.ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(int32(len(keys)+1)))
	if err != nil {
		return nil, fmt.Errorf("looking for marks: %w", err)
	}
	known := map[string]struct{}{}
	defer func() { _ = cur.Close(t.ctx) }() // it is used up, or the transaction ends
	for cur.Next(t.ctx) {
		known[cur.Current.Lookup("_id").StringValue()] = struct{}{}
	}
	if err := cur.Err(); err != nil {
		return nil, fmt.Errorf("looking for marks: %w", err)
	}
	return known, nil
}

// Raise takes one command.
func (t *tx) Raise(subject dedupe.Subject, version int64, retention time.Duration) (int64, bool, error) {
	set := bson.D{{Key: "$max", Value: bson.D{{Key: "version", Value: version}}}}
	if retention > 0 {
		set = bson.D{{Key: "$max", Value: bson.D{
			{Key: "version", Value: version}, {Key: "expire_at", Value: t.now.Add(retention)},
		}}}
	}
	var before struct {
		Version int64 `bson:"version"`
	}
	err := t.s.versions.FindOneAndUpdate(t.ctx,
		bson.D{{Key: "_id", Value: bson.D{{Key: "c", Value: subject.Consumer}, {Key: "a", Value: subject.Aggregate}, {Key: "i", Value: subject.AggregateID}}}},
		set, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.Before)).Decode(&before)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("raising the version: %w", conflicting(err))
	}
	return before.Version, true, nil
}

// Fences takes one command, and a second one when a fence rises.
func (t *tx) Fences(lanes []dedupe.Lane, retention time.Duration) ([]uint64, error) {
	highest := map[dedupe.Lane]uint64{}
	for _, lane := range lanes {
		highest[unfenced(lane)] = max(highest[unfenced(lane)], lane.Fence)
	}
	ids := make(bson.A, 0, len(highest))
	for lane := range highest {
		ids = append(ids, laneID(lane))
	}
	cur, err := t.s.fences.Find(t.ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return nil, fmt.Errorf("reading fences: %w", err)
	}
	var docs []struct {
		ID struct {
			C, R, K string
		} `bson:"_id"`
		Fence string `bson:"fence"`
	}
	if err := cur.All(t.ctx, &docs); err != nil {
		return nil, fmt.Errorf("reading fences: %w", err)
	}
	stored := map[dedupe.Lane]uint64{}
	for _, doc := range docs {
		fence, err := strconv.ParseUint(doc.Fence, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the fence of route %q: %w", doc.ID.R, err)
		}
		stored[dedupe.Lane{Consumer: doc.ID.C, Route: doc.ID.R, AggregateID: doc.ID.K}] = fence
	}
	var raises []mongo.WriteModel
	for lane, fence := range highest {
		if fence <= stored[lane] {
			highest[lane] = stored[lane]
			continue
		}
		raises = append(raises, mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: laneID(lane)}}).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{
				{Key: "fence", Value: fmt.Sprintf("%016x", fence)}, {Key: "expire_at", Value: t.now.Add(retention)},
			}}}))
	}
	if len(raises) > 0 {
		if _, err := t.s.fences.BulkWrite(t.ctx, raises); err != nil {
			return nil, fmt.Errorf("raising fences: %w", conflicting(err))
		}
	}
	out := make([]uint64, len(lanes))
	for i, lane := range lanes {
		out[i] = highest[unfenced(lane)]
	}
	return out, nil
}

func unfenced(lane dedupe.Lane) dedupe.Lane {
	lane.Fence = 0
	return lane
}

func laneID(lane dedupe.Lane) bson.D {
	return bson.D{{Key: "c", Value: lane.Consumer}, {Key: "r", Value: lane.Route}, {Key: "k", Value: lane.AggregateID}}
}

// conflicting makes a conflict with a concurrent transaction of a duplicate key:
// the look before didn't find it, so another transaction committed it since. The
// driver then runs the function again.
func conflicting(err error) error {
	if !mongo.IsDuplicateKeyError(err) {
		return err
	}
	return mongo.CommandError{
		Code: 112, Name: "WriteConflict", Message: err.Error(), Labels: []string{"TransientTransactionError"}, Wrapped: err,
	}
}
