package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// patience is how long anything healthy may take, in a test on a busy machine.
// Only the suite's own test changes it.
var patience = 30 * time.Second

// numbers makes ids unique within the process.
var numbers atomic.Int64

// lease makes a lease of a new event with a payload of its own.
func lease(key string, size int) core.Lease {
	id := fmt.Sprintf("event-%08d", numbers.Add(1))
	payload := bytes.Repeat([]byte("."), max(size, len(id)+16))
	copy(payload, `{"id":"`+id+`"}`)
	return core.Lease{
		Attempt: 1, Source: "/outbox/sinktest/outbox", Route: "sinktest", Fence: 7,
		Event: core.Event{
			ID: id, Type: "thing.changed", Aggregate: "thing", AggregateID: key,
			Payload: payload, ContentType: "text/plain", OccurredAt: time.UnixMilli(1_700_000_000_123),
			Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
	}
}

// tooLarge makes a lease of an event of d.TooLarge bytes.
func (d Destination) tooLarge(t testing.TB, key string) core.Lease {
	t.Helper()
	if d.TooLarge == 0 {
		t.Skip("the destination has no limit of size")
	}
	l := lease(key, 0)
	rest := d.TooLarge - l.Event.Size()
	l.Event.Payload = append(l.Event.Payload, bytes.Repeat([]byte("."), max(rest, 0))...)
	return l
}

// open opens a sink that is closed when the test ends.
func (d Destination) open(t testing.TB) core.Sink {
	t.Helper()
	s := d.Open(t)
	t.Cleanup(func() { closeSink(t, s) })
	return s
}

func closeSink(t testing.TB, s core.Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("closing the sink: %v", err)
	}
}

// deliver makes one call, and checks what holds of every call.
func deliver(t testing.TB, ctx context.Context, s core.Sink, leases ...core.Lease) []core.Result {
	t.Helper()
	results := s.Deliver(ctx, leases)
	if len(results) != len(leases) {
		t.Fatalf("Deliver of %d leases returned %d results: one result per lease, in order", len(leases), len(results))
	}
	for i, r := range results {
		switch {
		case r.Outcome == core.Delivered && r.Err != nil:
			t.Errorf("result %d is delivered and has an error: %v", i, r.Err)
		case r.Outcome != core.Delivered && r.Outcome != core.NotAttempted && r.Err == nil:
			t.Errorf("result %d is %v without a reason", i, r.Outcome)
		case r.Outcome == core.Throttled && r.RetryAfter <= 0:
			t.Errorf("result %d is throttled and doesn't say for how long", i)
		}
	}
	return results
}

// mustDeliver delivers leases of different keys in calls of the size that the
// sink takes, and fails the test unless all arrive.
func mustDeliver(t testing.TB, s core.Sink, leases ...core.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	size := core.CapabilitiesOf(s).MaxBatch
	if size == 0 {
		size = len(leases)
	}
	for len(leases) > 0 {
		n := min(size, len(leases))
		for i, r := range deliver(t, ctx, s, leases[:n]...) {
			if r.Outcome != core.Delivered {
				t.Fatalf("event %s of a healthy destination: %v: %v", leases[i].Event.ID, r.Outcome, r.Err)
			}
		}
		leases = leases[n:]
	}
}

// received maps the id of each message to how often it is there.
func (d Destination) received(t testing.TB) map[string]int {
	t.Helper()
	ids := map[string]int{}
	for _, m := range d.Received(t) {
		ids[m.ID]++
	}
	return ids
}

// checkTruth compares answers with what is there: delivered means there, and
// what is there was delivered or unknown.
func checkTruth(t testing.TB, there map[string]int, leases []core.Lease, results []core.Result) {
	t.Helper()
	for i, r := range results {
		id := leases[i].Event.ID
		switch {
		case r.Outcome == core.Delivered && there[id] == 0:
			t.Errorf("%s was reported as delivered and isn't there", id)
		case r.Outcome != core.Delivered && r.Outcome != core.Unknown && there[id] > 0:
			t.Errorf("%s is there and was reported as %v (%v)", id, r.Outcome, r.Err)
		}
	}
}

// idsOf lists the messages of a key, in order.
func idsOf(messages []Message, key string) []string {
	var ids []string
	for _, m := range messages {
		if m.Key == key {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func keys(prefix string, n, size int) []core.Lease {
	leases := make([]core.Lease, n)
	for i := range leases {
		leases[i] = lease(fmt.Sprintf("%s-%d", prefix, i), size)
	}
	return leases
}
