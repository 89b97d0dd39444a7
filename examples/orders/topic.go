package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// topic is what Kafka holds of this run.
type topic struct {
	*example.Topic
	// seen holds the types of each order's events in the order they came in.
	seen map[string][]string
}

func newTopic(database string) *topic {
	return &topic{example.OpenTopic(database + ".order"), map[string][]string{}}
}

func (t *topic) close() error { return t.Close(t.Name + ".dead") }

// readAll reads until as many events came as the orders in the database tell.
func (t *topic) readAll(ctx context.Context, db *mongo.Database) error {
	orders, err := placed(ctx, db)
	if err != nil {
		return err
	}
	for t.Count() < 2*len(orders) {
		event, err := t.Next(ctx)
		if err != nil {
			return err
		}
		t.seen[event.AggregateID] = append(t.seen[event.AggregateID], event.Type)
	}
	return nil
}

// awaitGroup waits until a consumer group has acknowledged all messages.
func (t *topic) awaitGroup(ctx context.Context, group string) error {
	return example.Await(ctx, "group "+group, func() (bool, error) {
		answer, err := t.Client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{t.Name: {0}}})
		if err != nil {
			return false, fmt.Errorf("asking for the offset of group %s: %w", group, err)
		}
		at := answer.Topics[t.Name]
		return len(at) == 1 && at[0].Error == nil && at[0].CommittedOffset >= t.Read, nil
	})
}

// check compares what came, and what was counted, with the orders in the
// database, and counts on out.
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
		if _, ok := orders[id]; !ok {
			phantom++
		}
	}
	miscounted, err := compareSales(ctx, db, orders)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "orders=%d events=%d missing=%d phantom=%d out_of_order=%d miscounted=%d\n",
		len(orders), t.Count(), missing, phantom, outOfOrder, miscounted)
	if missing+phantom+outOfOrder+miscounted > 0 {
		return errors.New("what Kafka or the read model holds differs from the orders in the database")
	}
	return nil
}
