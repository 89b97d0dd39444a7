package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// counts is how many webhooks came to each destination, repeats left out.
type counts struct{ kafka, amqp int }

// readBoth reads until both have what they must get: Kafka all, RabbitMQ the
// half of them that its route matches.
func readBoth(ctx context.Context, stage *example.Stage) (counts, error) {
	inKafka, err := readKafka(ctx, stage.Name+".payments")
	if err != nil {
		return counts{}, err
	}
	inAMQP, err := readAMQP(ctx, stage.Name)
	if err != nil {
		return counts{}, err
	}
	return counts{len(inKafka), len(inAMQP)}, nil
}

// readKafka reads all webhooks, and removes the topic.
func readKafka(ctx context.Context, topic string) (seen map[string]bool, err error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: example.KafkaBrokers(), Topic: topic, MaxWait: 100 * time.Millisecond})
	defer func() {
		client := &kafka.Client{Addr: kafka.TCP(example.KafkaBrokers()...)}
		_, failure := client.DeleteTopics(context.WithoutCancel(ctx), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		err = errors.Join(err, reader.Close(), failure)
	}()
	for seen = map[string]bool{}; len(seen) < webhooks; {
		m, err := reader.ReadMessage(ctx)
		switch {
		case errors.Is(err, kafka.UnknownTopicOrPartition), errors.Is(err, kafka.LeaderNotAvailable):
			time.Sleep(100 * time.Millisecond) // it has still to be created
			continue
		case err != nil:
			return nil, fmt.Errorf("reading Kafka after %d webhooks: %w", len(seen), err)
		}
		for _, h := range m.Headers {
			if h.Key == "ce_id" {
				seen[string(h.Value)] = true
			}
		}
	}
	return seen, nil
}

// readAMQP reads the webhooks about money, and removes queue and exchange.
func readAMQP(ctx context.Context, exchange string) (map[any]bool, error) {
	conn, err := amqp091.Dial(example.AMQPURL())
	if err != nil {
		return nil, fmt.Errorf("connecting to RabbitMQ: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing waits in it
	queue := exchange + ".bookkeeping"
	channel, err := example.AwaitQueue(ctx, conn, queue)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, _ = channel.QueueDelete(queue, false, false, false)
		_ = channel.ExchangeDelete(exchange, false, false)
	}()
	messages, err := channel.ConsumeWithContext(ctx, queue, "", true, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	seen := map[any]bool{}
	for len(seen) < webhooks/2 {
		m, ok := <-messages
		if !ok {
			return nil, fmt.Errorf("reading RabbitMQ: it ended after %d webhooks", len(seen))
		}
		seen[m.Headers["cloudEvents:id"]] = true
	}
	return seen, nil
}
