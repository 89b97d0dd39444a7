package mongo

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		db     func(testing.TB, ...*options.ClientOptions) *mongo.Database
		cfg    Config
		traits storetest.Traits
	}{
		{name: "ReplicaSet", db: servicetest.Database},
		{name: "ReplicaSetPolled", db: servicetest.Database, cfg: Config{Poll: true}, traits: storetest.Traits{OneCursor: true}},
		{
			name: "Standalone", db: servicetest.StandaloneDatabase, cfg: Config{AllowNoTransaction: true},
			traits: storetest.Traits{OneCursor: true, NoTransactions: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := storetest.Harness{
				New: func(t *testing.T) storetest.Store {
					cfg := tc.cfg
					cfg.PollInterval, cfg.ReadWait = 20*time.Millisecond, 200*time.Millisecond
					return suiteStore{newStore(t, tc.db(t), cfg), tc.traits.NoTransactions}
				},
				Count:  suiteCount,
				Put:    suitePut,
				Failed: suiteFailed, LoseToken: loseToken, BreakRead: breakRead,
				Traits: tc.traits,
			}
			h.Second = func(t *testing.T, s storetest.Store) storetest.Store {
				first := s.(suiteStore)
				cfg := first.cfg
				client := servicetest.Mongo(t)
				if tc.traits.NoTransactions {
					client = servicetest.Client(t, servicetest.StandaloneURL(t))
				}
				second, err := New(client.Database(first.db.Name()), cfg)
				if err != nil {
					t.Fatal(err)
				}
				return suiteStore{second, tc.traits.NoTransactions}
			}
			storetest.Run(t, h)
		})
	}
}

// suiteStore is a Store as the suite sees it.
type suiteStore struct {
	*Store
	noTransactions bool
}

// InTransaction calls fn alone where there are no transactions.
func (s suiteStore) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	if s.noTransactions {
		return fn(ctx)
	}
	return s.Store.InTransaction(ctx, fn)
}

func suiteCount(ctx context.Context, store storetest.Store, key string) (int64, error) {
	var counter struct {
		N int64 `bson:"n"`
	}
	err := store.(suiteStore).db.Collection("counters").FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&counter)
	return counter.N, err
}

func suitePut(ctx context.Context, store storetest.Store, docs ...storetest.Document) error {
	s := store.(suiteStore)
	for _, d := range docs {
		e := d.Event
		written := time.Now().Add(-d.Age)
		if e.OccurredAt.IsZero() {
			e.OccurredAt = written
		}
		doc := s.encodeEvent(&e, e.Payload, "", "")
		if d.Undecodable {
			doc = bson.D{{Key: "_id", Value: e.ID}, {Key: "seq", Value: bson.Timestamp{}}, {Key: "occurred_at", Value: written}}
		}
		for i := range doc {
			if doc[i].Key == "seq" && d.Age > 0 {
				doc[i].Value = bson.Timestamp{T: uint32(written.Unix()), I: 1} //nolint:gosec // until 2106
			}
		}
		if d.Published {
			doc = append(doc, bson.E{Key: "published_at", Value: time.Now()})
		}
		if _, err := s.log.InsertOne(ctx, doc, options.InsertOne().SetBypassDocumentValidation(true)); err != nil {
			return err
		}
	}
	return nil
}

func suiteFailed(ctx context.Context, store storetest.Store, cursor string) ([]storetest.Failed, error) {
	found, err := store.(suiteStore).jobs.Find(ctx, bson.D{{Key: "cursor", Value: cursor}, {Key: "state", Value: "failed"}})
	if err != nil {
		return nil, err
	}
	var jobs []storedJob
	if err := found.All(ctx, &jobs); err != nil {
		return nil, err
	}
	failed := make([]storetest.Failed, len(jobs))
	for i, j := range jobs {
		headers := map[string]string{}
		for _, h := range j.Headers {
			headers[h.Key] = fmt.Sprint(h.Value)
		}
		failed[i] = storetest.Failed{
			Event: core.Event{
				ID: j.EventID, Aggregate: j.Aggregate, AggregateID: j.AggregateID, Type: j.Type, Version: j.Version,
				AggregateVersion: j.AggregateVersion, ContentType: j.ContentType, Headers: maps.Clone(headers), Tenant: j.Tenant,
				OccurredAt: j.OccurredAt, CorrelationID: j.CorrelationID,
			},
			Sink: j.Sink, Attempts: j.Attempts, Failure: core.Failure{Code: j.Failure.Code, Reason: j.Failure.Reason},
		}
		if j.Payload != nil {
			failed[i].Event.Payload = j.Payload.Data
		}
	}
	return failed, nil
}

func loseToken(ctx context.Context, store storetest.Store, cursor string) error {
	_, err := store.(suiteStore).cursors.UpdateByID(ctx, cursor,
		bson.D{{Key: "$set", Value: bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "8200000000"}}}}}})
	return err
}

// breakRead ends the cursors that the server keeps open on the log.
func breakRead(ctx context.Context, store storetest.Store) error {
	s := store.(suiteStore)
	admin := s.client.Database("admin")
	found, err := admin.Aggregate(ctx, bson.A{
		op("$currentOp", bson.D{{Key: "allUsers", Value: true}, {Key: "idleCursors", Value: true}}),
		op("$match", bson.D{{Key: "ns", Value: s.db.Name() + "." + s.log.Name()}, {Key: "cursor.cursorId", Value: op("$exists", true)}}),
	})
	if err != nil {
		return err
	}
	var open []struct {
		Op     any `bson:"opid"`
		Cursor struct {
			ID int64 `bson:"cursorId"`
		} `bson:"cursor"`
	}
	if err := found.All(ctx, &open); err != nil {
		return err
	}
	for _, c := range open {
		if c.Op != nil {
			err = admin.RunCommand(ctx, bson.D{{Key: "killOp", Value: 1}, {Key: "op", Value: c.Op}}).Err()
		} else {
			err = s.db.RunCommand(ctx, bson.D{{Key: "killCursors", Value: s.log.Name()}, {Key: "cursors", Value: bson.A{c.Cursor.ID}}}).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
