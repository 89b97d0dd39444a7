package mongo

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// newStore is a store with its collections in a database of the test's own.
func newStore(t testing.TB, db *mongo.Database, cfg Config) *Store {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// order is a valid event.
func order(id string) core.Event {
	return core.Event{ID: id, Aggregate: "order", AggregateID: "o-1", Type: "order.placed", Payload: []byte(`{"n":1}`)}
}

// appendNow commits events in a transaction of their own, or without one on a
// store that allows it.
func appendNow(t testing.TB, s *Store, events ...core.Event) {
	t.Helper()
	appendTo := func(ctx context.Context) error { return s.Append(ctx, events...) }
	var err error
	if s.cfg.AllowNoTransaction {
		err = appendTo(t.Context())
	} else {
		err = s.InTransaction(t.Context(), appendTo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func acquire(t testing.TB, s *Store, name, owner string) *cursor {
	t.Helper()
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: name, Owner: owner, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Release(context.Background()) })
	return c.(*cursor)
}

// stored is the cursor's document.
func storedCursor(t testing.TB, s *Store, name string) cursorDoc {
	t.Helper()
	var doc cursorDoc
	if err := s.cursors.FindOne(t.Context(), bson.D{{Key: "_id", Value: name}}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func setCursor(t testing.TB, s *Store, name string, set bson.D) {
	t.Helper()
	res, err := s.cursors.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: name}}, bson.D{{Key: "$set", Value: set}})
	if err != nil || res.MatchedCount != 1 {
		t.Fatalf("changing cursor %s: %v, %v", name, res, err)
	}
}

// valueOf is a BSON value.
func valueOf(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: data}
}

func markAt(t testing.TB, id any, seconds uint32, ordinal uint64) *mark {
	t.Helper()
	return &mark{
		pos: core.Position{Time: numberOf(bson.Timestamp{T: seconds}), Ordinal: ordinal},
		id:  valueOf(t, id),
	}
}

func count(t testing.TB, coll *mongo.Collection, filter any) int64 {
	t.Helper()
	n, err := coll.CountDocuments(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// commands records what a client sends.
type commands struct {
	mu   sync.Mutex
	sent []*event.CommandStartedEvent
}

func (c *commands) options() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, e)
	}})
}

// take returns the commands since the last take.
func (c *commands) take() []*event.CommandStartedEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

func names(sent []*event.CommandStartedEvent) []string {
	var names []string
	for _, e := range sent {
		names = append(names, e.CommandName)
	}
	return names
}

// onBoth runs a test on the replica set and on the standalone.
func onBoth(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, db := range map[string]func(testing.TB, ...*options.ClientOptions) *mongo.Database{
		"replica set": servicetest.Database, "standalone": servicetest.StandaloneDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStore(t, db(t), Config{AllowNoTransaction: name == "standalone"}))
		})
	}
}

func optionsUnique() *options.IndexOptionsBuilder { return options.Index().SetUnique(true) }

func sortBySeq() *options.FindOptionsBuilder {
	return options.Find().SetSort(bson.D{{Key: "seq", Value: 1}})
}

// faulty is a server of the test's own, whose commands can be made to fail.
func faulty(t *testing.T) *mongo.Database {
	t.Helper()
	mongod := servicetest.StartMongod(t, services.MongodConfig{})
	return servicetest.DatabaseOf(t, servicetest.Client(t, mongod.URL()))
}

// failNext makes the server fail the next command of this name as data says.
func failNext(t *testing.T, db *mongo.Database, command string, data ...bson.E) {
	t.Helper()
	err := db.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{command}}}, data...)},
	}).Err()
	if err != nil {
		t.Fatalf("setting a fail point: %v", err)
	}
}

// notReplicated is what a server answers to a write that the majority did not
// acknowledge in time.
func notReplicated() bson.E {
	return bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}}
}
