package mongo

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/store/storetest"
)

func TestTheQueueConforms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		db     func(testing.TB, ...*options.ClientOptions) *mongo.Database
		cfg    Config
		traits storetest.Traits
	}{
		{name: "ReplicaSet", db: servicetest.Database},
		{
			name: "Standalone", db: servicetest.StandaloneDatabase, cfg: Config{AllowNoTransaction: true},
			traits: storetest.Traits{OneCursor: true, NoTransactions: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			another := func(t *testing.T, s storetest.Store) suiteStore {
				first := s.(suiteStore)
				second, err := New(first.client.Database(first.db.Name()), first.cfg)
				if err != nil {
					t.Fatal(err)
				}
				return suiteStore{second, tc.traits.NoTransactions}
			}
			storetest.RunQueue(t, storetest.Harness{
				New: func(t *testing.T) storetest.Store {
					cfg := tc.cfg
					cfg.PollInterval, cfg.ReadWait = 20*time.Millisecond, 200*time.Millisecond
					s := newStore(t, tc.db(t), cfg)
					// Whatever the store writes passes them.
					if err := s.EnsureValidators(t.Context()); err != nil {
						t.Fatal(err)
					}
					return suiteStore{s, tc.traits.NoTransactions}
				},
				Second: func(t *testing.T, s storetest.Store) storetest.Store { return another(t, s) },
				Put:    suitePut, Failed: suiteFailed,
				Queue:  func(s storetest.Store) storetest.Queue { return suiteQueue{s.(suiteStore).Store, clockOf(s)} },
				Admin:  func(s storetest.Store) core.Admin { return s.(suiteStore) },
				Elapse: suiteElapse,
				Skewed: func(t *testing.T, s storetest.Store, d time.Duration) storetest.Store {
					other := another(t, s)
					other.queue.now = func() time.Time { return time.Now().Add(d) }
					return other
				},
				PutJob: func(ctx context.Context, s storetest.Store, sink string) error {
					_, err := s.(suiteStore).jobs.InsertOne(ctx, bson.D{
						{Key: "sink", Value: sink},
						{Key: "state", Value: "ready"},
						{Key: "rank", Value: 1},
						{Key: "available_at", Value: bson.DateTime(0)},
						{Key: "seq", Value: bson.Timestamp{}},
					}, options.InsertOne().SetBypassDocumentValidation(true))
					return err
				},
				Traits:  tc.traits,
				Timeout: 3 * time.Minute,
			})
		})
	}
}

// suiteClocks are held while the time of a database is put forward.
var suiteClocks sync.Map

func clockOf(s storetest.Store) *sync.RWMutex {
	clock, _ := suiteClocks.LoadOrStore(s.(suiteStore).db.Name(), &sync.RWMutex{})
	return clock.(*sync.RWMutex)
}

// suiteQueue keeps time from passing while a claim is under way: a lease that
// ran out before its claim had returned would be one that nobody knows of.
type suiteQueue struct {
	*Store
	clock *sync.RWMutex
}

func (q suiteQueue) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	q.clock.RLock()
	defer q.clock.RUnlock()
	return q.Store.Claim(ctx, req)
}

// suiteElapse moves what the queue keeps of time back. Jobs that were due from
// the beginning stay so.
func suiteElapse(ctx context.Context, store storetest.Store, d time.Duration) error {
	set := bson.D{}
	for _, field := range []string{"enqueued_at", "not_before", "available_at", "claimed_at", "lease_until", "finished_at", "expire_at", "until"} {
		path := "$" + field
		set = append(set, bson.E{Key: field, Value: op("$cond", bson.A{
			op("$and", bson.A{
				op("$eq", bson.A{op("$type", path), "date"}), op("$gt", bson.A{path, bson.DateTime(0)}),
			}),
			op("$subtract", bson.A{path, d.Milliseconds()}),
			op("$ifNull", bson.A{path, "$$REMOVE"}),
		})})
	}
	clockOf(store).Lock()
	defer clockOf(store).Unlock()
	_, err := store.(suiteStore).jobs.UpdateMany(ctx, bson.D{}, bson.A{op("$set", set)})
	return err
}
