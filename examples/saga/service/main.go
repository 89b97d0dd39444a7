// Service is one of the four services of the saga: `service order`, `payment`,
// `inventory` or `shipping`. Each has a database of its own. It takes messages
// from its queue, and the effect of a message, the mark that it was seen, and
// the message that answers it are one transaction. A relay within the service
// brings its messages to the queues of the others.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/consumer"
	amqpconsumer "github.com/gooutbox/outbox/consumer/amqp"
	"github.com/gooutbox/outbox/consumer/dedupe"
	mongodedupe "github.com/gooutbox/outbox/consumer/dedupe/mongo"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// Order is what all messages carry.
type Order struct {
	ID       string `bson:"_id" json:"id"`
	Customer string `bson:"customer" json:"customer"`
	Item     string `bson:"item" json:"item"`
	Price    int    `bson:"price" json:"price"`
}

// participant is what makes one service differ from another.
type participant interface {
	// prepare makes what the service needs before its first message.
	prepare(ctx context.Context) error
	// handle has the effect of a message. It runs in a transaction, to which it
	// belongs by ctx.
	handle(ctx context.Context, what string, order Order) error
}

// service is what all of them have.
type service struct {
	name   string
	db     *mongo.Database
	outbox *mongostore.Store
}

// send writes a message to another service, in the transaction of ctx. The
// messages of an order keep their order.
func (s *service) send(ctx context.Context, to, what string, order Order) error {
	event, err := core.WithJSON(core.Event{Aggregate: to, AggregateID: order.ID, Type: what}, order)
	if err != nil {
		return err
	}
	return s.outbox.Append(ctx, event)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	slog.SetLogLoggerLevel(slog.LevelError) // being killed is what this is about
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	prefix := cmp.Or(os.Getenv("DATABASE"), "saga")
	s := &service{name: name, db: client.Database(prefix + "-" + name)}
	if s.outbox, err = mongostore.New(s.db, mongostore.Config{}); err != nil {
		return err
	}
	p, err := s.participant()
	if err != nil {
		return err
	}
	if err := errors.Join(s.outbox.EnsureIndexes(ctx), p.prepare(ctx)); err != nil {
		return err
	}
	broker := cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@127.0.0.1:5672/")

	ctx, cancel := context.WithCancel(ctx) // one that fails ends the other
	defer cancel()
	relayed := make(chan error, 1)
	go func() {
		relayed <- s.relay(ctx, broker, prefix)
		cancel()
	}()
	err = s.consume(ctx, broker, prefix, p)
	cancel()
	return errors.Join(err, <-relayed)
}

func (s *service) participant() (participant, error) {
	switch s.name {
	case "order":
		return newOrders(s), nil
	case "payment":
		return newPayment(s), nil
	case "inventory":
		return newInventory(s), nil
	case "shipping":
		return newShipping(s), nil
	}
	return nil, fmt.Errorf("there is no service %q", s.name)
}

// relay brings what the service has sent to the queue of each addressee.
func (s *service) relay(ctx context.Context, broker, prefix string) error {
	sink, err := amqpsink.New(amqpsink.Config{URLs: []string{broker}, RoutingKey: prefix + ".{{ .Aggregate }}"})
	if err != nil {
		return err
	}
	defer sink.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	r, err := relay.New(relay.Config{
		Log: s.outbox, Queue: s.outbox, Sinks: map[string]core.Sink{"queues": sink},
		Routes:      []relay.Route{{Name: "saga", Sink: "queues"}},
		CursorLease: time.Second, // how long the messages of a service that died wait
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// consume handles what others have sent, each message once.
func (s *service) consume(ctx context.Context, broker, prefix string, p participant) error {
	seen, err := mongodedupe.New(s.db, mongodedupe.Config{})
	if err != nil {
		return err
	}
	if err := seen.EnsureIndexes(ctx); err != nil {
		return err
	}
	guard, err := dedupe.New(seen, dedupe.Config{Consumer: s.name})
	if err != nil {
		return err
	}
	die := dying()
	return amqpconsumer.Run(ctx, amqpconsumer.Config{
		Dial:  func() (*amqp091.Connection, error) { return amqp091.Dial(broker) },
		Queue: prefix + "." + s.name, Consumer: s.name, Dead: amqpconsumer.DeadExchange{RoutingKey: prefix + ".dead"},
	}, guard.Handler(func(ctx context.Context, d consumer.Delivery) error {
		order, err := consumer.JSON[Order](d)
		if err != nil {
			return err
		}
		if err := p.handle(ctx, d.Type, order); err != nil {
			return err
		}
		die()
		return nil
	}))
}

// dying ends the process in the middle of a transaction: at its CRASH_AT-th
// message, when the effect and the answer are written and not committed.
func dying() func() {
	at, err := strconv.ParseInt(os.Getenv("CRASH_AT"), 10, 64)
	if err != nil {
		return func() {}
	}
	var handled atomic.Int64
	return func() {
		if handled.Add(1) == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing after it runs, however late the signal comes
		}
	}
}
