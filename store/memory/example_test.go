package memory_test

import (
	"context"
	"fmt"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

func Example() {
	ctx := context.Background()
	store := memory.New(memory.Config{})

	err := store.InTransaction(ctx, func(ctx context.Context) error {
		return store.Append(ctx, core.Event{AggregateID: "order-1", Type: "order.placed"})
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	cursor, err := store.Acquire(ctx, core.AcquireRequest{Name: "kafka", Owner: "me"})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err := cursor.Read(ctx, core.ReadLimit{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range batch.Entries {
		fmt.Println(e.Event.Type, e.Event.AggregateID)
	}
	// Output: order.placed order-1
}
