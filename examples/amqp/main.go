// Amqp shows the way of events from MongoDB to RabbitMQ: it writes invoices and
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

	"github.com/rabbitmq/amqp091-go"
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
	dir, err := os.MkdirTemp("", "amqp-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Base(dir) // database and exchange of its own each time
	uri := cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")
	broker := cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@127.0.0.1:5672/")

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

	const tool = "github.com/gooutbox/outbox/cmd/outbox"
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", tool).CombinedOutput(); err != nil {
		return fmt.Errorf("building the relay: %w\n%s", err, text)
	}
	config, err := configFile()
	if err != nil {
		return err
	}
	relay := exec.CommandContext(ctx, filepath.Join(dir, "outbox"), "relay", "--config", config)
	relay.Env = append(os.Environ(), "MONGODB_URL="+uri, "DATABASE="+name, "AMQP_URL="+broker, "EXCHANGE="+name)
	relay.Stderr = os.Stderr
	if err := relay.Start(); err != nil {
		return err
	}
	err = consume(ctx, broker, name, out)
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

// consume waits for the queue that the relay declares, and reads it.
func consume(ctx context.Context, broker, exchange string, out io.Writer) error {
	conn, err := amqp091.Dial(broker)
	if err != nil {
		return fmt.Errorf("connecting to the broker: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the program ends
	queue := exchange + ".billing"
	var channel *amqp091.Channel
	for {
		if channel, err = conn.Channel(); err != nil {
			return err
		}
		if _, err = channel.QueueDeclarePassive(queue, true, false, false, false, nil); err == nil {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the queue: %w", err)
		}
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

// configFile is the outbox.yaml beside this file, wherever in the repository the
// program was started.
func configFile() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/gooutbox/outbox/examples/amqp").Output()
	if err != nil {
		return "", fmt.Errorf("looking for outbox.yaml: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "outbox.yaml"), nil
}
