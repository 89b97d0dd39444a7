package mongo_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

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

// The naive way marks an event and then applies it, both acknowledged by the
// majority; it loses or repeats effects in a crash. Run all of them in one run:
//
//	go test ./consumer/dedupe/mongo -run '^$' -bench . -benchtime 3000x
func BenchmarkEffects(b *testing.B) {
	b.Run("naive", func(b *testing.B) {
		bench(b, 1, func(ctx context.Context, db *mongo.Database, _ *dedupe.Guard, ds []consumer.Delivery) error {
			result, err := db.Collection("naive").UpdateByID(ctx, ds[0].ID, bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "at", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
			if err != nil || result.UpsertedCount == 0 {
				return err
			}
			return insert(ctx, db, ds)
		})
	})
	b.Run("once", func(b *testing.B) {
		bench(b, 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
			_, err := g.Once(ctx, ds[0], func(ctx context.Context) error { return insert(ctx, db, ds) })
			return err
		})
	})
	b.Run("once-repeated", func(b *testing.B) {
		bench(b, 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
			ds[0].ID = "repeated"
			_, err := g.Once(ctx, ds[0], func(ctx context.Context) error { return insert(ctx, db, ds) })
			return err
		})
	})
	b.Run("batch-100", func(b *testing.B) {
		bench(b, 100, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
			_, err := g.OnceBatch(ctx, ds, func(ctx context.Context, fresh []consumer.Delivery) error { return insert(ctx, db, fresh) })
			return err
		})
	})
	b.Run("reserve", func(b *testing.B) {
		bench(b, 1, func(ctx context.Context, db *mongo.Database, g *dedupe.Guard, ds []consumer.Delivery) error {
			_, err := g.Reserve(ctx, ds[0], func(ctx context.Context, _ bool) error { return insert(ctx, db, ds) })
			return err
		})
	})
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

// bench handles b.N events on ten lanes, size of them a call.
func bench(b *testing.B, size int, handle func(context.Context, *mongo.Database, *dedupe.Guard, []consumer.Delivery) error) {
	b.Helper()
	var commands, next atomic.Int64
	monitor := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) }}
	db := servicetest.Database(b, options.Client().SetMonitor(monitor).SetWriteConcern(writeconcern.Majority()))
	if err := db.CreateCollection(b.Context(), "effects"); err != nil {
		b.Fatal(err)
	}
	if err := db.CreateCollection(b.Context(), "naive"); err != nil {
		b.Fatal(err)
	}
	g := guard(b, newStore(b, db), dedupe.Config{})
	commands.Store(0)
	b.ResetTimer()
	done := make(chan error, benchLanes)
	for range benchLanes {
		go func() {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= b.N {
					done <- nil
					return
				}
				ds := make([]consumer.Delivery, min(size, b.N-first))
				for i := range ds {
					ds[i] = delivery(fmt.Sprint("e", first+i))
				}
				if err := handle(b.Context(), db, g, ds); err != nil {
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
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(commands.Load())/float64(b.N), "commands/event")
}
