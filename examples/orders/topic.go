package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// topic is what Kafka holds of this run.
type topic struct {
	name   string
	client *kafka.Client
	reader *kafka.Reader
	// read is how many messages there are, repeats included.
	read int64
	// seen holds the types of each order's events in the order they came in,
	// without repeats; ids are those of the events.
	seen map[string][]string
	ids  map[string]bool
}

func newTopic(database string) *topic {
	brokers := example.KafkaBrokers()
	return &topic{
		name: database + ".order", client: &kafka.Client{Addr: kafka.TCP(brokers...)},
		reader: kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, Topic: database + ".order", Partition: 0, MaxWait: 100 * time.Millisecond,
		}),
		seen: map[string][]string{}, ids: map[string]bool{},
	}
}

// close removes the topics.
func (t *topic) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := t.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{t.name, t.name + ".dead"}})
	return errors.Join(t.reader.Close(), err)
}

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
			time.Sleep(100 * time.Millisecond) // it has still to be created
			continue
		case err != nil:
			return fmt.Errorf("reading from Kafka: %w", err)
		}
		t.read = m.Offset + 1
		headers := map[string]string{}
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		if t.ids[headers["ce_id"]] {
			continue // a repeat
		}
		t.ids[headers["ce_id"]] = true
		t.seen[string(m.Key)] = append(t.seen[string(m.Key)], headers["ce_type"])
	}
	return nil
}

// awaitGroup waits until a consumer group has acknowledged all messages.
func (t *topic) awaitGroup(ctx context.Context, group string) error {
	return example.Await(ctx, "group "+group, func() (bool, error) {
		answer, err := t.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{t.name: {0}}})
		if err != nil {
			return false, fmt.Errorf("asking for the offset of group %s: %w", group, err)
		}
		at := answer.Topics[t.name]
		return len(at) == 1 && at[0].Error == nil && at[0].CommittedOffset >= t.read, nil
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
		len(orders), len(t.ids), missing, phantom, outOfOrder, miscounted)
	if missing+phantom+outOfOrder+miscounted > 0 {
		return errors.New("what Kafka or the read model holds differs from the orders in the database")
	}
	return nil
}
