package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// topic is what Kafka holds of this run.
type topic struct {
	reader *kafka.Reader
	source string
	// seen holds the types of each order's events in the order they came in,
	// without repeats; ids are those of the events.
	seen map[string][]string
	ids  map[string]bool
}

func newTopic(e *example) *topic {
	return &topic{
		reader: kafka.NewReader(kafka.ReaderConfig{
			Brokers: strings.Split(e.brokers, ","), Topic: "shop.order", Partition: 0, MaxWait: 100 * time.Millisecond,
		}),
		source: "/outbox/" + e.database + "/outbox",
		seen:   map[string][]string{}, ids: map[string]bool{},
	}
}

func (t *topic) close() { _ = t.reader.Close() }

// readAll reads until as many events came as the orders in the database tell.
func (t *topic) readAll(ctx context.Context, db *mongo.Database) error {
	orders, err := placed(ctx, db)
	if err != nil {
		return err
	}
	for len(t.ids) < 2*len(orders) {
		m, err := t.reader.ReadMessage(ctx)
		switch {
		case errors.Is(err, kafka.UnknownTopicOrPartition), errors.Is(err, kafka.LeaderNotAvailable):
			time.Sleep(100 * time.Millisecond) // the relay has still to create it
			continue
		case err != nil:
			return fmt.Errorf("reading from Kafka: %w", err)
		}
		headers := map[string]string{}
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		if headers["ce_source"] != t.source || t.ids[headers["ce_id"]] {
			continue // another run's, or a repeat
		}
		t.ids[headers["ce_id"]] = true
		t.seen[string(m.Key)] = append(t.seen[string(m.Key)], headers["ce_type"])
	}
	return nil
}

// check compares what came with the orders in the database, and counts on out.
func (t *topic) check(ctx context.Context, db *mongo.Database, out io.Writer) error {
	orders, err := placed(ctx, db)
	if err != nil {
		return err
	}
	missing, phantom, outOfOrder := 0, 0, 0
	for id := range orders {
		switch strings.Join(t.seen[id], " ") {
		case "order.placed order.paid":
		case "order.paid order.placed":
			outOfOrder++
		default:
			missing++
		}
	}
	for id := range t.seen {
		if !orders[id] {
			phantom++
		}
	}
	fmt.Fprintf(out, "orders=%d events=%d missing=%d phantom=%d out_of_order=%d\n", len(orders), len(t.ids), missing, phantom, outOfOrder)
	if missing+phantom+outOfOrder > 0 {
		return errors.New("what Kafka holds differs from the orders in the database")
	}
	return nil
}

// placed are the ids of the orders in the database; each has been paid.
func placed(ctx context.Context, db *mongo.Database) (map[string]bool, error) {
	cursor, err := db.Collection("orders").Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("reading the orders: %w", err)
	}
	var docs []struct {
		ID bson.ObjectID `bson:"_id"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("reading the orders: %w", err)
	}
	orders := make(map[string]bool, len(docs))
	for _, d := range docs {
		orders[d.ID.Hex()] = true
	}
	return orders, nil
}
