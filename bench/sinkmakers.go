package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
	"github.com/gooutbox/outbox/sink/kafka"
	sqssink "github.com/gooutbox/outbox/sink/sqs"
)

// destination is an empty topic or queue, and a sink that leads there.
type destination struct {
	sink   core.Sink
	count  func(context.Context) (int, error)
	remove func(context.Context) error
}

// sinkMaker makes destinations of one kind.
type sinkMaker struct {
	name string
	// server is the variable that names it.
	server string
	make   func(ctx context.Context, s servers, name string) (destination, error)
}

const awsServer = "AWS_ENDPOINT_URL"

var sinkMakers = []sinkMaker{
	{"kafka", "KAFKA_BROKERS", makeTopic},
	{"amqp-classic", "AMQP_URL", func(_ context.Context, _ servers, name string) (destination, error) {
		return makeQueue(name, "classic")
	}},
	{"amqp-quorum", "AMQP_URL", func(_ context.Context, _ servers, name string) (destination, error) {
		return makeQueue(name, "quorum")
	}},
	{"sqs-standard", awsServer, func(ctx context.Context, _ servers, name string) (destination, error) {
		return makeSQS(ctx, name, false)
	}},
	{"sqs-fifo", awsServer, func(ctx context.Context, _ servers, name string) (destination, error) {
		return makeSQS(ctx, name, true)
	}},
}

func sinkNames() string {
	var names []string
	for _, m := range sinkMakers {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

func makeTopic(ctx context.Context, s servers, name string) (destination, error) {
	t := newTopics(s, 3)
	if err := t.make(ctx, name); err != nil {
		return destination{}, err
	}
	sink, err := kafka.New(kafka.Config{Brokers: s.brokers, Topic: name})
	return destination{
		sink: sink,
		count: func(ctx context.Context) (int, error) {
			n, err := t.count(ctx, name)
			return int(n), err
		},
		remove: func(ctx context.Context) error {
			t.remove(ctx, name)
			t.close()
			return nil
		},
	}, err
}

func makeQueue(name, queueType string) (destination, error) {
	url := os.Getenv("AMQP_URL")
	conn, err := amqp091.Dial(url)
	if err != nil {
		return destination{}, fmt.Errorf("connecting to RabbitMQ: %w", err)
	}
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(name, true, false, false, false, amqp091.Table{"x-queue-type": queueType})
	}
	if err != nil {
		return destination{}, fmt.Errorf("declaring queue %s: %w", name, err)
	}
	sink, err := amqpsink.New(amqpsink.Config{URLs: []string{url}, RoutingKey: name})
	return destination{
		sink: sink,
		count: func(context.Context) (int, error) {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, amqp091.Table{"x-queue-type": queueType})
			return q.Messages, err
		},
		remove: func(context.Context) error {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				return fmt.Errorf("deleting queue %s: %w", name, err)
			}
			return conn.Close()
		},
	}, err
}

func makeSQS(ctx context.Context, name string, fifo bool) (destination, error) {
	attributes := map[string]string{}
	name = name[max(0, len(name)-70):] // a name has 80 characters at most
	if fifo {
		name, attributes["FifoQueue"] = name+".fifo", "true"
	}
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithDefaultRegion("eu-central-1")}
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" { // an emulator takes any
		options = append(options, awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("bench", "bench", "")))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return destination{}, err
	}
	client := awssqs.NewFromConfig(cfg)
	queue, err := client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return destination{}, fmt.Errorf("creating queue %s: %w", name, err)
	}
	sink, err := sqssink.New(cfg, sqssink.Config{Queue: name})
	return destination{
		sink: sink,
		count: func(ctx context.Context) (int, error) {
			const messages = types.QueueAttributeNameApproximateNumberOfMessages
			out, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
				QueueUrl: queue.QueueUrl, AttributeNames: []types.QueueAttributeName{messages},
			})
			if err != nil {
				return 0, fmt.Errorf("counting queue %s: %w", name, err)
			}
			return strconv.Atoi(out.Attributes[string(messages)])
		},
		remove: func(ctx context.Context) error {
			_, err := client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: queue.QueueUrl})
			return err
		},
	}, err
}
