// Sqs shows the way of events from MongoDB to Amazon SQS: it writes invoices and
// an event for each in one transaction, runs `outbox relay` with the
// outbox.yaml beside it, and reads the queue.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const invoices = 10

// run writes what it does to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "sqs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Base(dir) // database and queue of its own each time
	uri := cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")

	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	db := client.Database(name)
	defer db.Drop(context.WithoutCancel(ctx)) //nolint:errcheck // so that another run finds the same
	if err := produce(ctx, db); err != nil {
		return err
	}

	queue, err := openQueue(ctx, name+".fifo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.remove()) }()

	const tool = "github.com/gooutbox/outbox/cmd/outbox"
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", tool).CombinedOutput(); err != nil {
		return fmt.Errorf("building the relay: %w\n%s", err, text)
	}
	config, err := configFile()
	if err != nil {
		return err
	}
	relay := exec.CommandContext(ctx, filepath.Join(dir, "outbox"), "relay", "--config", config)
	relay.Env = append(os.Environ(), "MONGODB_URL="+uri, "DATABASE="+name, "QUEUE="+name+".fifo")
	relay.Stderr = os.Stderr
	if err := relay.Start(); err != nil {
		return err
	}
	err = queue.consume(ctx, out)
	_ = relay.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, relay.Wait())
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

// configFile is the outbox.yaml beside this file, wherever in the repository the
// program was started.
func configFile() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/gooutbox/outbox/examples/sqs").Output()
	if err != nil {
		return "", fmt.Errorf("looking for outbox.yaml: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "outbox.yaml"), nil
}
