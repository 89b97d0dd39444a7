package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

// States of a document in outbox_seen.
const (
	stateDone    = "done"
	stateRunning = "running"
	stateUnknown = "unknown"
)

func id(key dedupe.Key) string { return key.Consumer + "/" + key.EventID }

func cond(test, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{test, then, otherwise}}}
}

func op(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }

// later is the server's time plus a duration.
func later(d time.Duration) bson.D { return op("$add", "$$NOW", d.Milliseconds()) }

// Reserve is one findAndModify: it decides by the server's clock what the
// document becomes, and changes nothing where the key isn't free.
func (s *Store) Reserve(ctx context.Context, req dedupe.ReserveRequest) (dedupe.Reservation, error) {
	expired := op("$lt", op("$add", "$lease_until", s.grace.Milliseconds()), "$$NOW")
	running := op("$eq", "$state", stateRunning)
	mine := op("$in", "$way", bson.A{"take", "again"})
	token := bson.D{{Key: "$literal", Value: req.Token}}
	after := "again"
	if req.Report {
		after = "doubt"
	}
	pipeline := mongo.Pipeline{
		{{Key: "$set", Value: bson.D{{Key: "way", Value: bson.D{{Key: "$switch", Value: bson.D{
			{Key: "branches", Value: bson.A{
				bson.D{{Key: "case", Value: op("$eq", op("$type", "$state"), "missing")}, {Key: "then", Value: "take"}},
				bson.D{{Key: "case", Value: op("$and", running, op("$ne", "$token", token), expired)}, {Key: "then", Value: after}},
			}},
			{Key: "default", Value: ""},
		}}}}}}},
		{{Key: "$set", Value: bson.D{
			{Key: "state", Value: cond(mine, stateRunning, cond(op("$eq", "$way", "doubt"), stateUnknown, "$state"))},
			{Key: "token", Value: cond(mine, token, "$token")},
			{Key: "lease_until", Value: cond(mine, later(req.Lease), "$lease_until")},
			{Key: "expire_at", Value: cond(mine, later(req.Lease+req.Retention), cond(op("$eq", "$way", "doubt"), "$$REMOVE", "$expire_at"))},
			{Key: "again", Value: cond(op("$eq", "$way", "again"), true, "$again")},
			{Key: "since", Value: cond(op("$eq", "$way", "doubt"), "$$NOW", "$since")},
		}}},
		{{Key: "$unset", Value: "way"}},
	}
	opts := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(bson.D{
		{Key: "state", Value: 1},
		{Key: "token", Value: 1},
		{Key: "again", Value: 1},
		{Key: "left", Value: op("$subtract", op("$add", "$lease_until", s.grace.Milliseconds()), "$$NOW")},
	})
	var doc struct {
		State string `bson:"state"`
		Token string `bson:"token"`
		Again bool   `bson:"again"`
		Left  int64  `bson:"left"`
	}
	for try := 0; ; try++ {
		err := s.seen.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: id(req.Key)}}, pipeline, opts).Decode(&doc)
		if err == nil {
			break
		}
		// Two first reservations at once: the other one won.
		if mongo.IsDuplicateKeyError(err) && try < 3 {
			continue
		}
		return dedupe.Reservation{}, fmt.Errorf("reserving the event: %w", away(err))
	}
	switch {
	case doc.State == stateRunning && doc.Token == req.Token:
		return dedupe.Reservation{State: dedupe.Reserved, Again: doc.Again}, nil
	case doc.State == stateRunning:
		return dedupe.Reservation{State: dedupe.Busy, After: max(time.Duration(doc.Left)*time.Millisecond, 0)}, nil
	case doc.State == stateUnknown:
		return dedupe.Reservation{State: dedupe.Doubtful}, nil
	case doc.State == stateDone:
		return dedupe.Reservation{State: dedupe.Marked}, nil
	}
	return dedupe.Reservation{}, fmt.Errorf("reserving the event: its document has the state %q, which this version doesn't know", doc.State)
}

// change updates the document of a key that token holds in one of the states.
func (s *Store) change(ctx context.Context, doing string, key dedupe.Key, token string, states bson.A, set bson.D, unset bson.A) error {
	filter := bson.D{
		{Key: "_id", Value: id(key)},
		{Key: "token", Value: token},
		{Key: "state", Value: bson.D{{Key: "$in", Value: states}}},
	}
	pipeline := mongo.Pipeline{{{Key: "$set", Value: set}}}
	if len(unset) > 0 {
		pipeline = append(pipeline, bson.D{{Key: "$unset", Value: unset}})
	}
	result, err := s.seen.UpdateOne(ctx, filter, pipeline)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, away(err))
	}
	if result.MatchedCount == 0 {
		return fmt.Errorf("%s: %w", doing, dedupe.ErrLost)
	}
	return nil
}

// Renew implements dedupe.Store.
func (s *Store) Renew(ctx context.Context, key dedupe.Key, token string, lease time.Duration) error {
	return s.change(ctx, "renewing the reservation", key, token, bson.A{stateRunning},
		bson.D{{Key: "lease_until", Value: later(lease)}}, nil)
}

// Finish implements dedupe.Store. The token stays, so that a repeated call finds
// what the first one did.
func (s *Store) Finish(ctx context.Context, key dedupe.Key, token string, retention time.Duration) error {
	return s.change(ctx, "marking the event", key, token, bson.A{stateRunning, stateUnknown, stateDone},
		bson.D{{Key: "state", Value: stateDone}, {Key: "expire_at", Value: later(retention)}}, bson.A{"lease_until", "again", "since"})
}

// Release implements dedupe.Store.
func (s *Store) Release(ctx context.Context, key dedupe.Key, token string, again bool) error {
	filter := bson.D{{Key: "_id", Value: id(key)}, {Key: "token", Value: token}, {Key: "state", Value: stateRunning}}
	var err error
	if again {
		_, err = s.seen.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{
			{Key: "token", Value: ""}, {Key: "lease_until", Value: time.Unix(0, 0)},
		}}})
	} else {
		_, err = s.seen.DeleteOne(ctx, filter)
	}
	if err != nil {
		return fmt.Errorf("giving the reservation back: %w", away(err))
	}
	return nil
}

// Doubt implements dedupe.Store. Such a document has no end: a person decides.
func (s *Store) Doubt(ctx context.Context, key dedupe.Key, token string) error {
	return s.change(ctx, "noting the event as unknown", key, token, bson.A{stateRunning, stateUnknown},
		bson.D{{Key: "state", Value: stateUnknown}, {Key: "since", Value: op("$ifNull", "$since", "$$NOW")}}, bson.A{"lease_until", "expire_at", "again"})
}

// Unknowns implements dedupe.Store.
func (s *Store) Unknowns(ctx context.Context, consumer string, limit int) ([]dedupe.Unknown, error) {
	if limit <= 0 {
		return nil, nil
	}
	prefix := consumer + "/"
	cur, err := s.seen.Find(ctx, bson.D{
		{Key: "state", Value: stateUnknown},
		{Key: "_id", Value: bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: consumer + "0"}}}, // 0 follows the slash
	}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("listing unknown events: %w", away(err))
	}
	var docs []struct {
		ID    string    `bson:"_id"`
		Since time.Time `bson:"since"`
	}
	if err := cur.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("listing unknown events: %w", away(err))
	}
	found := make([]dedupe.Unknown, len(docs))
	for i, doc := range docs {
		found[i] = dedupe.Unknown{EventID: doc.ID[len(prefix):], Since: doc.Since}
	}
	return found, nil
}

// Resolve implements dedupe.Store.
func (s *Store) Resolve(ctx context.Context, key dedupe.Key, done bool, retention time.Duration) error {
	filter := bson.D{{Key: "_id", Value: id(key)}, {Key: "state", Value: stateUnknown}}
	var n int64
	var err error
	if done {
		var result *mongo.UpdateResult
		result, err = s.seen.UpdateOne(ctx, filter, mongo.Pipeline{
			{{Key: "$set", Value: bson.D{{Key: "state", Value: stateDone}, {Key: "expire_at", Value: later(retention)}}}},
			{{Key: "$unset", Value: bson.A{"since", "token"}}},
		})
		if err == nil {
			n = result.MatchedCount
		}
	} else {
		var result *mongo.DeleteResult
		result, err = s.seen.DeleteOne(ctx, filter)
		if err == nil {
			n = result.DeletedCount
		}
	}
	if err != nil {
		return fmt.Errorf("resolving the event: %w", away(err))
	}
	if n == 0 {
		return fmt.Errorf("resolving the event: %w", dedupe.ErrNotUnknown)
	}
	return nil
}
