// Relay brings the events of the order service to Kafka, from within a program
// of one's own. It does what `outbox relay --config outbox.yaml` does.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

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
	store, err := mongostore.New(client.Database(database), mongostore.Config{})
	if err != nil {
		return err
	}
	sink, err := kafkasink.New(kafkasink.Config{
		Brokers:      strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "127.0.0.1:9092"), ","),
		Topic:        database + ".{{ .Aggregate }}",
		CreateTopics: true,
	})
	if err != nil {
		return err
	}
	defer sink.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	r, err := relay.New(relay.Config{
		Log:    store,
		Queue:  store, // keeps what Kafka refuses, so that other keys go on
		Sinks:  map[string]core.Sink{"events": sink},
		Routes: []relay.Route{{Name: "kafka", Sink: "events"}},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx) // until SIGTERM or SIGINT
}
