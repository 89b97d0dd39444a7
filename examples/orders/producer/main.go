// Producer is an order service at its smallest: it places and pays orders, and
// writes an event for each in the transaction that makes the change.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// Order is the business document, and the payload of its events.
type Order struct {
	ID    bson.ObjectID `bson:"_id" json:"id"`
	Item  string        `bson:"item" json:"item"`
	State string        `bson:"state" json:"state"`
}

var errSoldOut = errors.New("sold out")

// shop places and pays orders.
type shop struct {
	outbox        *mongostore.Store
	orders, stock *mongo.Collection
}

// place takes one item from the stock and notes the order. When the item is
// sold out the transaction rolls back, the order and its event with it.
func (s *shop) place(ctx context.Context, item string) (Order, error) {
	order := Order{ID: bson.NewObjectID(), Item: item, State: "placed"}
	err := s.outbox.InTransaction(ctx, func(ctx context.Context) error {
		if _, err := s.orders.InsertOne(ctx, order); err != nil {
			return err
		}
		if err := s.publish(ctx, "order.placed", order); err != nil {
			return err
		}
		taken, err := s.stock.UpdateOne(ctx,
			bson.M{"_id": item, "left": bson.M{"$gt": 0}}, bson.M{"$inc": bson.M{"left": -1}})
		if err == nil && taken.ModifiedCount == 0 {
			err = errSoldOut
		}
		return err
	})
	return order, err
}

// pay changes the same document as place: that keeps the two events in order.
func (s *shop) pay(ctx context.Context, order Order) error {
	order.State = "paid"
	return s.outbox.InTransaction(ctx, func(ctx context.Context) error {
		if _, err := s.orders.UpdateByID(ctx, order.ID, bson.M{"$set": bson.M{"state": order.State}}); err != nil {
			return err
		}
		return s.publish(ctx, "order.paid", order)
	})
}

func (s *shop) publish(ctx context.Context, what string, order Order) error {
	event, err := core.WithJSON(core.Event{Aggregate: "order", AggregateID: order.ID.Hex(), Type: what}, order)
	if err != nil {
		return err
	}
	return s.outbox.Append(ctx, event)
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")))
	if err != nil {
		return err
	}
	defer client.Disconnect(ctx) //nolint:errcheck // the program ends
	db := client.Database(cmp.Or(os.Getenv("DATABASE"), "shop"))
	outbox, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		return err
	}
	if err := outbox.EnsureIndexes(ctx); err != nil {
		return err
	}
	s := &shop{outbox: outbox, orders: db.Collection("orders"), stock: db.Collection("stock")}
	for _, item := range []string{"lamp", "chair"} {
		_, err := s.stock.UpdateByID(ctx, item, bson.M{"$set": bson.M{"left": 5}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return err
		}
	}
	placed, declined := 0, 0
	for i := range 12 {
		order, err := s.place(ctx, []string{"lamp", "chair"}[i%2])
		if errors.Is(err, errSoldOut) {
			declined++
			continue
		}
		if err != nil {
			return err
		}
		if err := s.pay(ctx, order); err != nil {
			return err
		}
		placed++
	}
	fmt.Printf("placed=%d declined=%d\n", placed, declined)
	return nil
}
