package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// BenchmarkDeliver sends batches as a relay makes them to a real broker, and
// reports what one event costs.
func BenchmarkDeliver(b *testing.B) {
	for _, c := range []struct {
		name         string
		events, size int
		partitions   int
	}{
		{"500 of 500 B, 1 partition", 500, 500, 1},
		{"500 of 500 B, 12 partitions", 500, 500, 12},
		{"2000 of 500 B, 12 partitions", 2000, 500, 12},
		{"8 of 1 MiB, 1 partition", 8, 1 << 20, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			topic := servicetest.Topic(b, c.partitions, "max.message.bytes=2097152", "retention.bytes=67108864", "segment.bytes=16777216")
			s, err := New(Config{Brokers: servicetest.Kafka(b), Topic: topic})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			leases := make([]core.Lease, c.events)
			payload := make([]byte, c.size)
			for i := range leases {
				leases[i] = core.Lease{
					Source: "/outbox/shop/outbox", Route: "kafka", Fence: 1 << 60,
					Event: core.Event{
						ID: fmt.Sprintf("0190e6b5-7c1e-7000-8000-%012d", i), Type: "order.placed", Aggregate: "order",
						AggregateID: fmt.Sprintf("order-%d", i), Payload: payload, OccurredAt: time.Now(),
						Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
					},
				}
			}
			b.ReportAllocs()
			b.SetBytes(int64(c.events * c.size))
			for b.Loop() {
				for _, r := range s.Deliver(context.Background(), leases) {
					if r.Outcome != core.Delivered {
						b.Fatal(r.Err)
					}
				}
			}
			b.ReportMetric(float64(b.N*c.events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
