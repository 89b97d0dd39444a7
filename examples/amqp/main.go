// Amqp shows the way of events from MongoDB to RabbitMQ: it writes invoices and
// an event for each in one transaction, runs `outbox relay` with the
// outbox.yaml beside it, and reads the queue.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rabbitmq/amqp091-go"
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
	stage, err := example.Open("amqp", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err := produce(ctx, stage.DB); err != nil {
		return err
	}
	if err := stage.Build(ctx, "cmd/outbox"); err != nil {
		return err
	}
	stage.Set("EXCHANGE", stage.Name)
	relay, err := stage.Relay(ctx, "examples/amqp")
	if err != nil {
		return err
	}
	return errors.Join(consume(ctx, stage.Name, out), relay.Stop())
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

// consume waits for the queue that the relay declares, and reads it.
func consume(ctx context.Context, exchange string, out io.Writer) error {
	conn, err := amqp091.Dial(example.AMQPURL())
	if err != nil {
		return fmt.Errorf("connecting to the broker: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the program ends
	queue := exchange + ".billing"
	channel, err := example.AwaitQueue(ctx, conn, queue)
	if err != nil {
		return err
	}
	defer func() {
		_, _ = channel.QueueDelete(queue, false, false, false)
		_ = channel.ExchangeDelete(exchange, false, false)
	}()
	messages, err := channel.ConsumeWithContext(ctx, queue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	seen := map[any]bool{}
	for len(seen) < invoices {
		m, ok := <-messages
		if !ok {
			return fmt.Errorf("reading the queue: it ended after %d of %d invoices", len(seen), invoices)
		}
		var invoice struct{ Total int }
		if err := json.Unmarshal(m.Body, &invoice); err != nil {
			return err
		}
		if id := m.Headers["cloudEvents:id"]; !seen[id] { // repeats have the same id
			seen[id] = true
			fmt.Fprintf(out, "%s of invoice %s: %d\n", m.Type, m.Headers["cloudEvents:subject"], invoice.Total)
		}
	}
	_, err = fmt.Fprintf(out, "invoices=%d events=%d\n", invoices, len(seen))
	return err
}
