package services

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// givenTimeout is how long a server that the environment names may take to
// answer.
const givenTimeout = 5 * time.Second

// useGiven tells which servers are not started because the environment names
// them, and fails for those that don't answer: a shell may still hold the
// variables of servers that were stopped.
func useGiven(ctx context.Context, given []Variable) error {
	failures := make([]error, len(given))
	var all sync.WaitGroup
	for i, v := range given {
		progress("using %s from the environment instead of starting one", v.Name)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, givenTimeout)
			defer cancel()
			if err := v.ping(ctx); err != nil {
				failures[i] = fmt.Errorf("using %s from the environment: nothing answers there; to have a server started instead, run: unset %s (%w)", v.Name, v.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// ping returns an error without secrets if the server doesn't answer before
// ctx ends.
func (v Variable) ping(ctx context.Context) error {
	if v.Name == kafkaVariable {
		return withKafkaClient(strings.Split(v.Value, ","), func(client *kafka.Client) error {
			_, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
			return err
		})
	}
	if v.Name == amqpVariable {
		return pingRabbitMQ(ctx, v.Value)
	}
	if v.Name == awsVariable {
		return pingHTTP(ctx, v.Value)
	}
	opts := options.Client().ApplyURI(v.Value)
	if opts.Validate() != nil {
		return errors.New("it is no address of MongoDB") // the driver's words may quote a password
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return fmt.Errorf("setting up a client: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return client.Ping(ctx, nil)
}
