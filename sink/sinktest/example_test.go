package sinktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// shelf stands for a service: it keeps what it is given, up to 10,000 bytes each.
type shelf struct {
	mu       sync.Mutex
	messages []sinktest.Message
}

func (s *shelf) put(_ context.Context, l core.Lease) error {
	if l.Event.Size() > 10_000 {
		return core.MarkRejected(errors.New("too large for the shelf: 10,000 bytes at most"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, sinktest.Message{
		ID: l.Event.ID, Key: l.Event.AggregateID, Payload: bytes.Clone(l.Event.Payload),
	})
	return nil
}

func (s *shelf) all(testing.TB) []sinktest.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// closing is a sink that takes nothing any more once it is closed.
type closing struct {
	core.SinkFunc
	mu     sync.RWMutex
	closed bool
}

func (c *closing) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		results := make([]core.Result, len(leases))
		for i := range results {
			results[i] = core.ResultOf("", core.MarkUnavailable(errors.New("the sink is closed")))
		}
		return results
	}
	return c.SinkFunc.Deliver(ctx, leases)
}

func (c *closing) Close(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// TestShelf is all that a sink's own test needs.
func TestShelf(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{New: func(testing.TB) sinktest.Destination {
		s := &shelf{}
		return sinktest.Destination{
			Open:     func(testing.TB) core.Sink { return &closing{SinkFunc: s.put} },
			Received: s.all,
			TooLarge: 20_000,
		}
	}})
}

func ExampleTable() {
	// CrashPoints returns a table like this one.
	table := sinktest.Table{
		{Step: "send", When: sinktest.Before, Events: 24, First: map[core.Outcome]int{core.Unavailable: 24}},
		{Step: "send", When: sinktest.After, Events: 24, Repeats: 10, First: map[core.Outcome]int{core.Delivered: 14, core.Unknown: 10}},
	}
	fmt.Print(table)
	fmt.Println("at most", table.Worst(), "events come twice")
	// Output:
	// | step | fault | outcomes of the call | repeats |
	// | --- | --- | --- | --- |
	// | send | before | 24 unavailable | 0 of 24 |
	// | send | after | 14 delivered, 10 unknown | 10 of 24 |
	// at most 10 events come twice
}
