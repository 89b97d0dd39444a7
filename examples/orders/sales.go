package main

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// sale is a document of the consumer's read model.
type sale struct {
	Item   string `bson:"_id"`
	Placed int    `bson:"placed"`
	Paid   int    `bson:"paid"`
}

func sales(ctx context.Context, db *mongo.Database) ([]sale, error) {
	return example.All[sale](ctx, db.Collection("sales"))
}

// awaitSales waits until the read model has counted n events at least.
func awaitSales(ctx context.Context, db *mongo.Database, n int) error {
	return example.Await(ctx, "the read model", func() (bool, error) {
		counted, err := sales(ctx, db)
		sum := 0
		for _, s := range counted {
			sum += s.Placed + s.Paid
		}
		return sum >= n, err
	})
}

// compareSales returns by how much the read model differs from the orders.
func compareSales(ctx context.Context, db *mongo.Database, orders map[string]string) (int, error) {
	counted, err := sales(ctx, db)
	if err != nil {
		return 0, err
	}
	want := map[string]int{}
	for _, item := range orders {
		want[item]++
	}
	off := 0
	for _, s := range counted {
		off += max(s.Placed-want[s.Item], want[s.Item]-s.Placed) + max(s.Paid-want[s.Item], want[s.Item]-s.Paid)
		delete(want, s.Item)
	}
	for _, n := range want {
		off += 2 * n
	}
	return off, nil
}

// placed are the items of the orders in the database by the orders' ids; each
// order has been paid.
func placed(ctx context.Context, db *mongo.Database) (map[string]string, error) {
	docs, err := example.All[struct {
		ID   bson.ObjectID `bson:"_id"`
		Item string        `bson:"item"`
	}](ctx, db.Collection("orders"))
	orders := make(map[string]string, len(docs))
	for _, d := range docs {
		orders[d.ID.Hex()] = d.Item
	}
	return orders, err
}
