package amqp_test

import (
	"context"
	"fmt"

	"github.com/gooutbox/outbox/core"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
)

func Example() {
	sink, err := amqpsink.New(amqpsink.Config{
		URLs:       []string{"amqp://relay:secret@127.0.0.1:1/"}, // nothing listens there
		Exchange:   "shop",
		RoutingKey: "{{ .Aggregate }}.{{ .Type }}",
		Topology: amqpsink.Topology{
			Exchanges: []amqpsink.Exchange{{Name: "shop"}},
			Queues:    []amqpsink.Queue{{Name: "billing", Arguments: map[string]any{"x-queue-type": "quorum"}}},
			Bindings:  []amqpsink.Binding{{Exchange: "shop", Queue: "billing", RoutingKey: "order.#"}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close(context.Background()) }()

	results := sink.Deliver(context.Background(), []core.Lease{{
		Source: "/outbox/shop/outbox",
		Event:  core.Event{ID: "0190e6b5", Type: "placed", Aggregate: "order", AggregateID: "order-1", Payload: []byte(`{"total":42}`)},
	}})
	fmt.Println(results[0].Outcome)
	// Output: unavailable
}
