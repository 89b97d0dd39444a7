package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/examples/internal/example"
)

// counts is how many webhooks came to each destination, repeats left out.
type counts struct{ kafka, amqp int }

// readBoth reads until both have what they must get: Kafka all, RabbitMQ the
// half of them that its route matches.
func readBoth(ctx context.Context, stage *example.Stage) (counts, error) {
	topic := example.OpenTopic(stage.Name + ".payments")
	for topic.Count() < webhooks {
		if _, err := topic.Next(ctx); err != nil {
			return counts{}, errors.Join(err, topic.Close())
		}
	}
	inAMQP, err := readAMQP(ctx, stage.Name)
	return counts{topic.Count(), len(inAMQP)}, errors.Join(err, topic.Close())
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
