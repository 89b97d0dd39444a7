// Consumer keeps a read model of the orders: how many of each item were placed
// and paid. Adding one is an effect that must not be repeated, and Kafka gives
// an event again whenever a consumer dies before its offset is committed. So
// each event is counted and marked in one transaction.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	mongodedupe "github.com/gooutbox/outbox/consumer/dedupe/mongo"
	kafkaconsumer "github.com/gooutbox/outbox/consumer/kafka"
)

// order is what this program reads of an event's payload.
type order struct {
	Item string `json:"item"`
}

// sales is the read model.
type sales struct{ items *mongo.Collection }

// count is the effect of an event. All it writes, it writes with ctx.
func (s sales) count(ctx context.Context, d consumer.Delivery) error {
	o, err := consumer.JSON[order](d)
	if err != nil {
		return err // no order at all: a dead letter
	}
	field := strings.TrimPrefix(d.Type, "order.") // placed or paid
	_, err = s.items.UpdateByID(ctx, o.Item, bson.M{"$inc": bson.M{field: 1}}, options.UpdateOne().SetUpsert(true))
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	database := cmp.Or(os.Getenv("DATABASE"), "shop")
	db := client.Database(database)
	seen, err := mongodedupe.New(db, mongodedupe.Config{})
	if err != nil {
		return err
	}
	if err := seen.EnsureIndexes(ctx); err != nil {
		return err
	}
	guard, err := dedupe.New(seen, dedupe.Config{Consumer: "sales"})
	if err != nil {
		return err
	}

	brokers := strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "127.0.0.1:9092"), ",")
	topic, dead := database+".order", database+".order.dead"
	if err := createTopics(ctx, brokers, topic, dead); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, Topic: topic, GroupID: database + "." + cmp.Or(os.Getenv("GROUP"), "sales"),
		StartOffset:    kafka.FirstOffset, // of a group that is new
		SessionTimeout: 6 * time.Second,   // how long the partitions of a consumer that died wait
		MaxWait:        100 * time.Millisecond,
	})
	defer reader.Close() //nolint:errcheck // the program ends
	err = kafkaconsumer.Run(ctx, kafkaconsumer.Config{
		Reader: reader, Consumer: "sales", Dead: kafkaconsumer.DeadTopic{Brokers: brokers, Topic: dead},
	}, guard.Handler(sales{db.Collection("sales")}.count))
	counted := guard.Stats()
	fmt.Printf("fresh=%d repeated=%d\n", counted.Fresh, counted.Repeated)
	return err
}

// createTopics creates those that are missing.
func createTopics(ctx context.Context, brokers []string, names ...string) error {
	request := &kafka.CreateTopicsRequest{}
	for _, name := range names {
		request.Topics = append(request.Topics, kafka.TopicConfig{Topic: name, NumPartitions: 1, ReplicationFactor: 1})
	}
	answer, err := (&kafka.Client{Addr: kafka.TCP(brokers...)}).CreateTopics(ctx, request)
	if err != nil {
		return fmt.Errorf("creating topics: %w", err)
	}
	for name, err := range answer.Errors {
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return fmt.Errorf("creating topic %s: %w", name, err)
		}
	}
	return nil
}
