package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// step is what follows an answer: the state in which the order must be, the one
// that it gets, and what is asked next, of whom.
type step struct{ from, to, ask, what string }

// The whole saga. What can't be done is undone in the reverse order; an undoing
// step is not refused.
var steps = map[string]step{
	"payment.taken":    {"paying", "reserving", "inventory", "stock.reserve"},
	"payment.refused":  {from: "paying", to: "cancelled"},
	"stock.reserved":   {"reserving", "shipping", "shipping", "shipment.book"},
	"stock.missing":    {"reserving", "refunding", "payment", "payment.refund"},
	"shipment.booked":  {from: "shipping", to: "confirmed"},
	"shipment.refused": {"shipping", "releasing", "inventory", "stock.release"},
	"stock.released":   {"releasing", "refunding", "payment", "payment.refund"},
	"payment.refunded": {from: "refunding", to: "cancelled"},
}

// orders is the order service: it places orders, and is the orchestrator.
type orders struct {
	*service
	coll *mongo.Collection
}

func newOrders(s *service) *orders { return &orders{s, s.db.Collection("orders")} }

// prepare places as many orders as ORDERS says; a service that was killed goes
// on where it was.
func (o *orders) prepare(ctx context.Context) error {
	wanted, err := strconv.Atoi(os.Getenv("ORDERS"))
	if err != nil {
		return fmt.Errorf("reading ORDERS: %w", err)
	}
	go func() {
		for n := range wanted {
			if err := o.place(ctx, n); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "placing an order:", err)
				os.Exit(1)
			}
		}
	}()
	return nil
}

// place stores an order and asks for its payment, in one transaction.
func (o *orders) place(ctx context.Context, n int) error {
	order := Order{
		ID: fmt.Sprintf("order-%04d", n), Customer: fmt.Sprint("customer-", rand.IntN(customers)),
		Item: fmt.Sprint("item-", rand.IntN(items)), Price: 5 + rand.IntN(20),
	}
	err := o.outbox.InTransaction(ctx, func(ctx context.Context) error {
		_, err := o.coll.InsertOne(ctx, bson.M{
			"_id": order.ID, "customer": order.Customer, "item": order.Item, "price": order.Price, "state": "paying",
		})
		if err != nil {
			return err
		}
		return o.send(ctx, "payment", "payment.take", order)
	})
	if mongo.IsDuplicateKeyError(err) {
		return nil // placed before this process began
	}
	return err
}

func (o *orders) handle(ctx context.Context, what string, order Order) error {
	next, ok := steps[what]
	if !ok {
		return core.MarkRejected(fmt.Errorf("nobody waits for %s", what))
	}
	result, err := o.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: order.ID}, {Key: "state", Value: next.from}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: next.to}, {Key: "because", Value: what}}}})
	if err != nil {
		return err
	}
	if result.MatchedCount == 0 {
		return core.MarkRejected(errors.New("the order is in another state: this answer was not waited for"))
	}
	if next.ask == "" {
		return nil
	}
	return o.send(ctx, next.ask, next.what, order)
}
