package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// An event from a Go value.
func ExampleWithJSON() {
	order := struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}{"o-17", 4200}
	event, err := core.WithJSON(core.Event{Aggregate: "order", AggregateID: order.ID, Type: "order.placed"}, order)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event.Type, event.ContentType, string(event.Payload))
	// Output: order.placed application/json {"id":"o-17","total":4200}
}

// A sink of one's own: a function that says how its errors are to be taken.
func ExampleSinkFunc() {
	sink := core.SinkFunc(func(_ context.Context, l core.Lease) error {
		if len(l.Event.Payload) > 3 {
			return core.MarkRejected(errors.New("payload over 3 bytes"))
		}
		return nil
	})
	for _, r := range sink.Deliver(context.Background(), []core.Lease{
		{Event: core.Event{Payload: []byte("abc")}},
		{Event: core.Event{Payload: []byte("abcd")}},
	}) {
		fmt.Println(r.Outcome, r.Err)
	}
	// Output:
	// delivered <nil>
	// rejected payload over 3 bytes
}
