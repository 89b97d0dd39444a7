package amqp

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// BenchmarkDeliver sends batches as a relay makes them to a real broker, whose
// queue drops its oldest messages. Callers stand for lanes.
func BenchmarkDeliver(b *testing.B) {
	url := servicetest.AMQPURL(b)
	for _, queueType := range []string{"classic", "quorum"} {
		for _, c := range []struct {
			name                        string
			events, keys, size, callers int
		}{
			{"500 of 500 B, 500 keys, 1 lane", 500, 500, 500, 1},
			{"500 of 500 B, 500 keys, 5 lanes", 500, 500, 500, 5},
			{"500 of 500 B, 10 keys, 1 lane", 500, 10, 500, 1},
			{"500 of 500 B, 1 key, 1 lane", 500, 1, 500, 1},
			{"8 of 1 MiB, 8 keys, 1 lane", 8, 8, 1 << 20, 1},
		} {
			b.Run(queueType+", "+c.name, func(b *testing.B) {
				q := newQueue(b, url, amqp091.Table{"x-queue-type": queueType, "x-max-length": int64(10_000), "x-max-length-bytes": int64(32 << 20)})
				s := newSink(b, Config{URLs: []string{url}, Exchange: q.name})
				payload := make([]byte, c.size)
				calls := make([][]core.Lease, c.callers)
				for n := range calls {
					calls[n] = make([]core.Lease, c.events)
					for i := range calls[n] {
						calls[n][i] = core.Lease{
							Source: "/outbox/shop/outbox", Route: "amqp", Fence: 1 << 60,
							Event: core.Event{
								ID: fmt.Sprintf("0190e6b5-7c1e-7000-%04d-%012d", n, i), Type: "order.placed", Aggregate: "order",
								AggregateID: fmt.Sprintf("order-%d-%d", n, i%c.keys), Payload: payload, OccurredAt: time.Now(),
								Headers: map[string]string{"traceparent": traceparent},
							},
						}
					}
				}
				b.ReportAllocs()
				b.SetBytes(int64(c.events * c.size))
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for n := range calls {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							for _, r := range s.Deliver(context.Background(), calls[n]) {
								if r.Outcome != core.Delivered {
									b.Error(r.Err)
									return
								}
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N*c.events)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
