package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	mongodedupe "github.com/gooutbox/outbox/consumer/dedupe/mongo"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func delivery(id string) consumer.Delivery {
	return consumer.Delivery{Event: core.Event{ID: id, Aggregate: "order", AggregateID: "o-1", Type: "order.placed"}}
}

// Both guards race on each event; each event has one effect, and nobody sees an
// error of the conflict.
func TestTwoConsumersRaceOnAnEvent(t *testing.T) {
	t.Parallel()
	races := 1000
	if testing.Short() {
		races = 100
	}
	db := servicetest.Database(t)
	s := newStore(t, db)
	guards := []*dedupe.Guard{guard(t, s, dedupe.Config{}), guard(t, s, dedupe.Config{})}
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for n := range next {
				var fresh atomic.Int64
				var pair sync.WaitGroup
				for _, g := range guards {
					pair.Go(func() {
						id := fmt.Sprint("e", n)
						verdict, err := g.Once(t.Context(), delivery(id), func(ctx context.Context) error { return effect(ctx, db, id) })
						if err != nil {
							t.Errorf("event %d: %v", n, err)
						}
						if verdict == dedupe.Fresh {
							fresh.Add(1)
						}
					})
				}
				pair.Wait()
				if fresh.Load() != 1 {
					t.Errorf("event %d was fresh %d times", n, fresh.Load())
				}
			}
		})
	}
	for n := range races {
		next <- n
	}
	close(next)
	wg.Wait()
	if n, total := effects(t, db); n != races || total != races {
		t.Errorf("%d events had their effect, %d effects in all, want %d", n, total, races)
	}
	a, b := guards[0].Stats(), guards[1].Stats()
	if a.Fresh+b.Fresh != int64(races) || a.Repeated+b.Repeated != int64(races) {
		t.Errorf("counted: %+v and %+v", a, b)
	}
}

// What a consumer appends to its own outbox is part of the effect.
func TestAnEventAppendedInTheEffectIsPartOfIt(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	outbox, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := guard(t, newStore(t, db), dedupe.Config{})
	failing := errors.New("out of stock")
	for _, end := range []error{failing, nil, nil} {
		_, err := g.Once(t.Context(), delivery("e"), func(ctx context.Context) error {
			if err := outbox.Append(ctx, core.Event{AggregateID: "o-1", Type: "order.paid", Payload: []byte("{}")}); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatalf("got %v, want %v", err, end)
		}
	}
	if n, err := db.Collection("outbox").CountDocuments(t.Context(), bson.D{}); err != nil || n != 1 {
		t.Errorf("%d events, %v; want 1", n, err)
	}
}

func TestAPanicInTheEffectLeavesNothing(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	g := guard(t, newStore(t, db), dedupe.Config{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = g.Once(t.Context(), delivery("e"), func(ctx context.Context) error {
			if err := effect(ctx, db, "e"); err != nil {
				t.Error(err)
			}
			panic("the program's")
		})
	}()
	verdict, err := g.Once(t.Context(), delivery("e"), func(ctx context.Context) error { return effect(ctx, db, "e") })
	if err != nil || verdict != dedupe.Fresh {
		t.Errorf("%v, %v", verdict, err)
	}
	if _, total := effects(t, db); total != 1 {
		t.Errorf("%d effects, want 1", total)
	}
}

func TestAGuardInATransactionSaysSo(t *testing.T) {
	t.Parallel()
	g := guard(t, newStore(t, servicetest.Database(t)), dedupe.Config{})
	_, err := g.Once(t.Context(), delivery("e"), func(ctx context.Context) error {
		_, err := g.Once(ctx, delivery("f"), func(context.Context) error { return nil })
		return err
	})
	if !errors.Is(err, mongodedupe.ErrNested) {
		t.Errorf("got %v", err)
	}
}

// For any number of events: one look and one insert of marks.
func TestABatchTakesTwoCommandsForItsMarks(t *testing.T) {
	t.Parallel()
	var commands atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, ok := e.Command.Lookup(e.CommandName).StringValueOK(); ok && strings.HasPrefix(name, mongodedupe.DefaultCollection) {
			commands.Add(1)
		}
	}}
	db := servicetest.Database(t, options.Client().SetMonitor(monitor))
	g := guard(t, newStore(t, db), dedupe.Config{})
	var ds []consumer.Delivery
	for i := range 500 {
		ds = append(ds, delivery(fmt.Sprint("e", i%400)))
	}
	for run, want := range []int{400, 0} {
		commands.Store(0)
		fresh := 0
		verdicts, err := g.OnceBatch(t.Context(), ds, func(_ context.Context, got []consumer.Delivery) error {
			fresh = len(got)
			return nil
		})
		if err != nil || fresh != want || len(verdicts) != len(ds) {
			t.Errorf("run %d: %d fresh of %d verdicts, %v", run, fresh, len(verdicts), err)
		}
		if n := commands.Load(); n > 2 || n == 0 {
			t.Errorf("run %d took %d commands for its marks", run, n)
		}
	}
	if got := g.Stats(); got.Fresh != 400 || got.Repeated != 600 {
		t.Errorf("counted: %+v", got)
	}
}

// Marks end by the server's clock, whatever that of the consumer says, and by a
// TTL index.
func TestMarksEndAfterTheirRetention(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	g := guard(t, newStore(t, db), dedupe.Config{Retention: 48 * time.Hour, VersionRetention: time.Hour})
	d := delivery("e")
	d.AggregateVersion = 3
	if _, err := g.Once(t.Context(), d, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.IfNewer(t.Context(), d, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var now struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := db.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&now); err != nil {
		t.Fatal(err)
	}
	for name, retention := range map[string]time.Duration{"": 48 * time.Hour, "_versions": time.Hour} {
		coll := db.Collection(mongodedupe.DefaultCollection + name)
		var doc struct {
			ExpireAt time.Time `bson:"expire_at"`
		}
		if err := coll.FindOne(t.Context(), bson.D{}).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		if off := doc.ExpireAt.Sub(now.LocalTime.Add(retention)).Abs(); off > time.Minute {
			t.Errorf("%s ends %v off", coll.Name(), off)
		}
		specs, err := coll.Indexes().ListSpecifications(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, spec := range specs {
			found = found || spec.ExpireAfterSeconds != nil && *spec.ExpireAfterSeconds == 0
		}
		if !found {
			t.Errorf("%s has no TTL index", coll.Name())
		}
	}
}

// A database that is away is not the event's fault; a query of the effect that
// fails is.
func TestAnOutageCountsNoAttempt(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?replicaSet=none").SetServerSelectionTimeout(50 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	s, err := mongodedupe.New(client.Database("nowhere"), mongodedupe.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := guard(t, s, dedupe.Config{})
	_, err = g.Once(t.Context(), delivery("e"), func(context.Context) error { return nil })
	if core.ResultOf("", err).Outcome != core.Unavailable {
		t.Errorf("Once: %v is %v", err, core.ResultOf("", err).Outcome)
	}
	_, err = g.Reserve(t.Context(), delivery("e"), func(context.Context, bool) error { return nil })
	if core.ResultOf("", err).Outcome != core.Unavailable {
		t.Errorf("Reserve: %v is %v", err, core.ResultOf("", err).Outcome)
	}
	db := servicetest.Database(t)
	_, err = guard(t, newStore(t, db), dedupe.Config{}).Once(t.Context(), delivery("e"), func(ctx context.Context) error {
		_, err := db.Collection("effects").UpdateByID(ctx, 1, bson.D{{Key: "$nonsense", Value: 1}})
		return err
	})
	if err == nil || core.ResultOf("", err).Outcome != core.Refused {
		t.Errorf("a wrong query: %v is %v", err, core.ResultOf("", err).Outcome)
	}
}

func TestAStandaloneSaysThatItHasNoTransactions(t *testing.T) {
	t.Parallel()
	db := servicetest.StandaloneDatabase(t)
	_, err := guard(t, newStore(t, db), dedupe.Config{}).Once(t.Context(), delivery("e"), func(context.Context) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "--replSet") {
		t.Errorf("got %v", err)
	}
}
