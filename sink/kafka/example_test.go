package kafka_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/gooutbox/outbox/core"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
)

func Example() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "order.placed")) // stands for a real one
	defer cluster.Close()

	sink, err := kafkasink.New(kafkasink.Config{Brokers: cluster.ListenAddrs()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close(context.Background()) }()

	results := sink.Deliver(context.Background(), []core.Lease{{
		Source: "/outbox/shop/outbox",
		Event:  core.Event{ID: "0190e6b5", Type: "order.placed", AggregateID: "order-1", Payload: []byte(`{"total":42}`)},
	}})
	fmt.Println(results[0].Outcome, results[0].Receipt)
	// Output: delivered order.placed-1@0
}
