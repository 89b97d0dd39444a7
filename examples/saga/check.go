package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// state is what the four databases hold.
type state struct {
	orders []order
	// payments, stock and shipments are what was done for each order, in the
	// order in which it was done.
	payments, stock, shipments map[string][]string
	// wrong are sums of amounts that differ from what was noted.
	wrong []string
}

type order struct {
	ID      string `bson:"_id"`
	State   string `bson:"state"`
	Because string `bson:"because"`
}

func database(stage *example.Stage, service string) *mongo.Database {
	return stage.DB.Client().Database(stage.Name + "-" + service)
}

func drop(stage *example.Stage) error {
	var errs []error
	for _, name := range services {
		errs = append(errs, database(stage, name).Drop(context.Background()))
	}
	return errors.Join(errs...)
}

// endedOrders counts them.
func endedOrders(ctx context.Context, stage *example.Stage) (int, error) {
	n, err := database(stage, "order").Collection("orders").CountDocuments(ctx,
		bson.D{{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"confirmed", "cancelled"}}}}})
	return int(n), err
}

func readState(ctx context.Context, stage *example.Stage) (*state, error) {
	s := &state{}
	var errs [4]error
	s.orders, errs[0] = example.All[order](ctx, database(stage, "order").Collection("orders"))
	s.payments, errs[1] = s.read(ctx, database(stage, "payment"), "accounts", "changes")
	s.stock, errs[2] = s.read(ctx, database(stage, "inventory"), "stock", "changes")
	s.shipments, errs[3] = s.read(ctx, database(stage, "shipping"), "", "shipments")
	return s, errors.Join(errs[:]...)
}

// read returns what was done for each order, and compares its sum with the
// amounts.
func (s *state) read(ctx context.Context, db *mongo.Database, amounts, changes string) (map[string][]string, error) {
	notes, err := example.All[struct {
		Order, What string
		By          int
	}](ctx, db.Collection(changes))
	if err != nil {
		return nil, err
	}
	done, sum := map[string][]string{}, 0
	for _, n := range notes {
		done[n.Order] = append(done[n.Order], n.What)
		sum += n.By
	}
	if amounts == "" {
		return done, nil
	}
	docs, err := example.All[struct{ Amount, Start int }](ctx, db.Collection(amounts))
	for _, d := range docs {
		sum += d.Start - d.Amount
	}
	if sum != 0 {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: the sum is off by %d", amounts, sum))
	}
	return done, err
}

// violations of the invariants, see the README.
func (s *state) violations() []string {
	found := slices.Clone(s.wrong)
	if len(s.orders) != orders {
		found = append(found, fmt.Sprintf("there are %d orders, not %d", len(s.orders), orders))
	}
	known := map[string]bool{}
	for _, o := range s.orders {
		known[o.ID] = true
		payments, stock, shipments := s.payments[o.ID], s.stock[o.ID], s.shipments[o.ID]
		fits := false
		switch o.State {
		case "confirmed":
			fits = slices.Equal(payments, []string{"taken"}) && slices.Equal(stock, []string{"reserved"}) &&
				slices.Equal(shipments, []string{"booked"})
		case "cancelled":
			fits = len(shipments) == 0 &&
				(len(stock) == 0 || slices.Equal(payments, []string{"taken", "refunded"}) && slices.Equal(stock, []string{"reserved", "released"})) &&
				(len(payments) == 0 || slices.Equal(payments, []string{"taken", "refunded"}))
		}
		if !fits {
			found = append(found, fmt.Sprintf("%s is %s: payments %v, stock %v, shipments %v", o.ID, o.State, payments, stock, shipments))
		}
	}
	for _, done := range []map[string][]string{s.payments, s.stock, s.shipments} {
		for id := range done {
			if !known[id] {
				found = append(found, fmt.Sprintf("something was done for %s, which doesn't exist", id))
			}
		}
	}
	return found
}

// unfinished counts orders that are neither confirmed nor cancelled.
func (s *state) unfinished() int {
	return s.count(func(o order) bool { return o.State != "confirmed" && o.State != "cancelled" })
}

// ended counts orders whose last answer was this one.
func (s *state) ended(because string) int {
	return s.count(func(o order) bool { return o.Because == because })
}

// undone counts cancelled orders of which something was undone, by how far they
// came.
func (s *state) undone(refusal string) int {
	return s.count(func(o order) bool {
		return o.Because == "payment.refunded" && (len(s.stock[o.ID]) > 0) == (refusal == "shipment.refused")
	})
}

func (s *state) count(which func(order) bool) int {
	n := 0
	for _, o := range s.orders {
		if which(o) {
			n++
		}
	}
	return n
}
