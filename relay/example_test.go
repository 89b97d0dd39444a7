package relay_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// An application appends events in its transactions; a relay brings them to a
// sink, here a function, until its context ends.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})

	err := store.InTransaction(ctx, func(ctx context.Context) error {
		return store.Append(ctx,
			core.Event{AggregateID: "order-1", Type: "order.placed", Payload: []byte(`{"total":42}`)},
			core.Event{AggregateID: "order-1", Type: "order.paid"},
		)
	})
	if err != nil {
		panic(err)
	}

	printer := core.SinkFunc(func(_ context.Context, l core.Lease) error {
		fmt.Println(l.Event.AggregateID, l.Event.Type, string(l.Event.Payload))
		if l.Event.Type == "order.paid" {
			stop()
		}
		return nil
	})
	r, err := relay.New(relay.Config{
		Log:    store,
		Sinks:  map[string]core.Sink{"print": printer},
		Routes: []relay.Route{{Name: "printer", Sink: "print"}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	if err := r.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// order-1 order.placed {"total":42}
	// order-1 order.paid
}
