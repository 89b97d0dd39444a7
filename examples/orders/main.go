// Orders runs the example as a whole and checks it: the consumer with its read
// model; the producer, the relay as a program of one's own, the producer again,
// and then `outbox relay`, which goes on where the other has stopped. The
// consumer is killed, and gets all events a second time. In the end Kafka and
// the read model are compared with the orders in the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gooutbox/outbox/examples/internal/example"
)

func main() { example.Main(run) }

// run writes what the programs print to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("orders", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	err = stage.Build(ctx, "cmd/outbox", "examples/orders/producer", "examples/orders/relay", "examples/orders/consumer")
	if err != nil {
		return err
	}
	events := newTopic(stage.Name)
	defer func() { err = errors.Join(err, events.close()) }()
	consumer, err := stage.Start(ctx, "consumer")
	if err != nil {
		return err
	}
	relays := []func() (*example.Process, error){
		func() (*example.Process, error) { return stage.Start(ctx, "relay") },
		func() (*example.Process, error) { return stage.Relay(ctx, "examples/orders") },
	}
	for round, start := range relays {
		if err := stage.Command(ctx, "producer").Run(); err != nil {
			return fmt.Errorf("running the producer: %w", err)
		}
		relay, err := start()
		if err != nil {
			return err
		}
		if err := errors.Join(events.readAll(ctx, stage.DB), relay.Stop()); err != nil {
			return err
		}
		if round > 0 {
			continue
		}
		if err := awaitSales(ctx, stage.DB, 1); err != nil {
			return err
		}
		consumer.Kill() // wherever it is
		if consumer, err = stage.Start(ctx, "consumer"); err != nil {
			return err
		}
	}
	if err := awaitSales(ctx, stage.DB, events.Count()); err != nil {
		return err
	}
	if err := errors.Join(repeat(ctx, stage, events), consumer.Stop()); err != nil {
		return err
	}
	return events.check(ctx, stage.DB, out)
}

// repeat lets a consumer group that is new get all events a second time. Their
// marks lie in the database, not in Kafka's offsets.
func repeat(ctx context.Context, stage *example.Stage, events *topic) error {
	stage.Set("GROUP", "again")
	again, err := stage.Start(ctx, "consumer")
	if err != nil {
		return err
	}
	return errors.Join(events.awaitGroup(ctx, stage.Name+".again"), again.Stop())
}
