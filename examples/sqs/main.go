// Sqs shows the way of events from MongoDB to Amazon SQS: it writes invoices and
// an event for each in one transaction, runs `outbox relay` with the
// outbox.yaml beside it, and reads the queue.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/examples/internal/example"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func main() { example.Main(run) }

const invoices = 10

// run writes what it does to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("sqs", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err := produce(ctx, stage.DB); err != nil {
		return err
	}
	queue, err := openQueue(ctx, stage.Name+".fifo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.remove()) }()
	if err := stage.Build(ctx, "cmd/outbox"); err != nil {
		return err
	}
	stage.Set("QUEUE", stage.Name+".fifo")
	relay, err := stage.Relay(ctx, "examples/sqs")
	if err != nil {
		return err
	}
	return errors.Join(queue.consume(ctx, out), relay.Stop())
}

// produce writes each invoice and its event in one transaction.
func produce(ctx context.Context, db *mongo.Database) error {
	outbox, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		return err
	}
	for number := range invoices {
		err := outbox.InTransaction(ctx, func(ctx context.Context) error {
			invoice := bson.M{"_id": number, "total": 100 + number}
			if _, err := db.Collection("invoices").InsertOne(ctx, invoice); err != nil {
				return err
			}
			event, err := core.WithJSON(core.Event{Aggregate: "invoice", AggregateID: fmt.Sprint(number), Type: "invoice.sent"}, invoice)
			if err != nil {
				return err
			}
			return outbox.Append(ctx, event)
		})
		if err != nil {
			return fmt.Errorf("writing invoice %d: %w", number, err)
		}
	}
	return nil
}

// fifo is the queue that the relay sends to.
type fifo struct {
	client *sqs.Client
	url    *string
}

// openQueue makes a queue. Region, endpoint and credentials are those that every
// AWS program finds, as the relay does.
func openQueue(ctx context.Context, name string) (*fifo, error) {
	found, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := sqs.NewFromConfig(found)
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"FifoQueue": "true"}})
	if err != nil {
		return nil, fmt.Errorf("making the queue: %w", err)
	}
	return &fifo{client, made.QueueUrl}, nil
}

func (q *fifo) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := q.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: q.url})
	return err
}

// consume reads the queue until all invoices are there.
func (q *fifo) consume(ctx context.Context, out io.Writer) error {
	seen := map[string]bool{}
	for len(seen) < invoices {
		got, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: q.url, MaxNumberOfMessages: 10, WaitTimeSeconds: 2, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			return fmt.Errorf("reading the queue after %d of %d invoices: %w", len(seen), invoices, err)
		}
		for _, m := range got.Messages {
			id, subject := attribute(&m, "ce_id"), attribute(&m, "ce_subject")
			var invoice struct{ Total int }
			if err := json.Unmarshal([]byte(aws.ToString(m.Body)), &invoice); err != nil {
				return err
			}
			if !seen[id] { // repeats have the same id
				seen[id] = true
				fmt.Fprintf(out, "%s of invoice %s: %d\n", attribute(&m, "ce_type"), subject, invoice.Total)
			}
			if _, err := q.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: q.url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(out, "invoices=%d events=%d\n", invoices, len(seen))
	return err
}

// attribute is one of the first attributes; those that found no place are in
// outboxrest, see docs/wire.md.
func attribute(m *types.Message, name string) string {
	value := m.MessageAttributes[name]
	return aws.ToString(value.StringValue)
}
