package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// benchLanes is how many goroutines handle events.
const benchLanes = 10

// way is one of handling events: a call gets as many as size says.
type way struct {
	name   string
	size   int
	handle func(context.Context, *mongo.Database, *dedupe.Guard, []consumer.Delivery) error
}

// ways are those that are compared. The naive one marks an event and then applies
// it, both acknowledged by the majority; it loses or repeats effects in a crash.
var ways = []way{
	{"naive", 1, func(ctx context.Context, db *mongo.Database, _ *dedupe.Guard, ds []consumer.Delivery) error {
		result, err := db.Collection("naive").UpdateByID(ctx, ds[0].ID, bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "at", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
		if err != nil || result.UpsertedCount == 0 {
			return err
		}
		return insert(ctx, db, ds)
	}},
	{"once", 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
		_, err := g.Once(ctx, ds[0], func(ctx context.Context) error { return insert(ctx, db, ds) })
		return err
	}},
	{"batch-100", 100, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
		_, err := g.OnceBatch(ctx, ds, func(ctx context.Context, fresh []consumer.Delivery) error { return insert(ctx, db, fresh) })
		return err
	}},
	{"once-repeated", 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
		ds[0].ID = "repeated"
		_, err := g.Once(ctx, ds[0], func(ctx context.Context) error { return insert(ctx, db, ds) })
		return err
	}},
	{"reserve", 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
		_, err := g.Reserve(ctx, ds[0], func(ctx context.Context, _ bool) error { return insert(ctx, db, ds) })
		return err
	}},
}

// Each way alone:
//
//	go test ./consumer/dedupe/mongo -run '^$' -bench Effects -benchtime 3000x
func BenchmarkEffects(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			f := newField(b)
			b.ResetTimer()
			f.run(b, w, b.N)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(f.commands.Load())/float64(b.N), "commands/event")
		})
	}
}

// All ways in turns, so that whatever else the machine does meets all of them;
// each is compared with the naive one by the median of the turns:
//
//	go test ./consumer/dedupe/mongo -run '^$' -bench Beside -benchtime 9x
func BenchmarkBesideNaive(b *testing.B) {
	const events = 500 // a turn
	f := newField(b)
	ratios := map[string][]float64{}
	for b.Loop() {
		var naive time.Duration
		for _, w := range ways {
			began := time.Now()
			f.run(b, w, events)
			took := time.Since(began)
			if w.name == "naive" {
				naive = took
			}
			ratios[w.name] = append(ratios[w.name], took.Seconds()/naive.Seconds())
		}
	}
	for _, w := range ways[1:] {
		slices.Sort(ratios[w.name])
		b.ReportMetric(ratios[w.name][len(ratios[w.name])/2], w.name+"/naive")
	}
}

// insert writes the effects of events in one command.
func insert(ctx context.Context, db *mongo.Database, ds []consumer.Delivery) error {
	models := make([]mongo.WriteModel, len(ds))
	for i, d := range ds {
		models[i] = mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "order", Value: d.AggregateID}, {Key: "event", Value: d.ID}})
	}
	_, err := db.Collection("effects").BulkWrite(ctx, models)
	return err
}

// field is a database in which events have effects.
type field struct {
	db             *mongo.Database
	guard          *dedupe.Guard
	commands, next atomic.Int64
}

func newField(b *testing.B) *field {
	b.Helper()
	f := &field{}
	monitor := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { f.commands.Add(1) }}
	f.db = servicetest.Database(b, options.Client().SetMonitor(monitor).SetWriteConcern(writeconcern.Majority()))
	for _, name := range []string{"effects", "naive"} {
		if err := f.db.CreateCollection(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
	f.guard = guard(b, newStore(b, f.db), dedupe.Config{})
	f.commands.Store(0)
	return f
}

// run handles n events that are new, on ten lanes.
func (f *field) run(b *testing.B, w way, n int) {
	b.Helper()
	end := f.next.Load() + int64(n)
	done := make(chan error, benchLanes)
	for range benchLanes {
		go func() {
			for {
				first := f.next.Add(int64(w.size)) - int64(w.size)
				if first >= end {
					done <- nil
					return
				}
				ds := make([]consumer.Delivery, min(int64(w.size), end-first))
				for i := range ds {
					ds[i] = delivery(fmt.Sprint("e", first+int64(i)))
				}
				if err := w.handle(b.Context(), f.db, f.guard, ds); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range benchLanes {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
