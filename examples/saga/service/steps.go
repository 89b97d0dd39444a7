package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// What there is at the start: enough for most orders, not for all.
const (
	customers, balance = 20, 120
	items, stock       = 10, 16
)

// book is a collection of amounts, and one that notes each change of them: that
// a change was made twice shows in both.
type book struct{ amounts, changes *mongo.Collection }

// open makes the amounts that are missing.
func (b book) open(ctx context.Context, name string, count, amount int) error {
	for n := range count {
		_, err := b.amounts.UpdateByID(ctx, fmt.Sprint(name, "-", n),
			bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "amount", Value: amount}, {Key: "start", Value: amount}}}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return err
		}
	}
	return nil
}

// change adds to an amount, if that leaves it at 0 at least, and notes why.
func (b book) change(ctx context.Context, name string, by int, order Order, why string) (bool, error) {
	result, err := b.amounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: name}, {Key: "amount", Value: bson.D{{Key: "$gte", Value: -by}}}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "amount", Value: by}}}})
	if err != nil || result.MatchedCount == 0 {
		return false, err
	}
	return true, note(ctx, b.changes, order, why, by)
}

// note adds a document with an id of its own each time.
func note(ctx context.Context, to *mongo.Collection, order Order, what string, by int) error {
	_, err := to.InsertOne(ctx, bson.D{{Key: "order", Value: order.ID}, {Key: "what", Value: what}, {Key: "by", Value: by}})
	return err
}

func unknown(what string) error {
	return core.MarkRejected(fmt.Errorf("%s is no command of this service", what))
}

// payment takes money and gives it back.
type payment struct {
	*service
	book
}

func newPayment(s *service) *payment {
	return &payment{s, book{s.db.Collection("accounts"), s.db.Collection("changes")}}
}

func (p *payment) prepare(ctx context.Context) error {
	return p.open(ctx, "customer", customers, balance)
}

func (p *payment) handle(ctx context.Context, what string, order Order) error {
	switch what {
	case "payment.take":
		done, err := p.change(ctx, order.Customer, -order.Price, order, "taken")
		if err != nil {
			return err
		}
		if !done {
			return p.send(ctx, "order", "payment.refused", order)
		}
		return p.send(ctx, "order", "payment.taken", order)
	case "payment.refund":
		if _, err := p.change(ctx, order.Customer, order.Price, order, "refunded"); err != nil {
			return err
		}
		return p.send(ctx, "order", "payment.refunded", order)
	}
	return unknown(what)
}

// inventory reserves items and gives them back.
type inventory struct {
	*service
	book
}

func newInventory(s *service) *inventory {
	return &inventory{s, book{s.db.Collection("stock"), s.db.Collection("changes")}}
}

func (i *inventory) prepare(ctx context.Context) error { return i.open(ctx, "item", items, stock) }

func (i *inventory) handle(ctx context.Context, what string, order Order) error {
	switch what {
	case "stock.reserve":
		done, err := i.change(ctx, order.Item, -1, order, "reserved")
		if err != nil {
			return err
		}
		if !done {
			return i.send(ctx, "order", "stock.missing", order)
		}
		return i.send(ctx, "order", "stock.reserved", order)
	case "stock.release":
		if _, err := i.change(ctx, order.Item, 1, order, "released"); err != nil {
			return err
		}
		return i.send(ctx, "order", "stock.released", order)
	}
	return unknown(what)
}

// shipping books shipments; for every third order it finds no carrier.
type shipping struct {
	*service
	shipments *mongo.Collection
}

func newShipping(s *service) *shipping { return &shipping{s, s.db.Collection("shipments")} }

func (s *shipping) prepare(context.Context) error { return nil }

func (s *shipping) handle(ctx context.Context, what string, order Order) error {
	if what != "shipment.book" {
		return unknown(what)
	}
	if rand.IntN(3) == 0 {
		return s.send(ctx, "order", "shipment.refused", order)
	}
	if err := note(ctx, s.shipments, order, "booked", 1); err != nil {
		return err
	}
	return s.send(ctx, "order", "shipment.booked", order)
}
