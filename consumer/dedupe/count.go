package dedupe

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Stats counts what a Guard made of deliveries since it was made.
type Stats struct {
	Fresh, Repeated, Stale, InFlight, Unknown int64
	// Gaps counts versions of IfNewer that didn't follow the one before.
	Gaps int64
	// Lost counts reservations that were lost while the effect ran.
	Lost int64
}

// Stats returns the counts.
func (g *Guard) Stats() Stats {
	c := g.counts
	return Stats{
		Fresh: c.by[Fresh].Load(), Repeated: c.by[Repeated].Load(), Stale: c.by[Stale].Load(),
		InFlight: c.by[InFlight].Load(), Unknown: c.by[Uncertain].Load(), Gaps: c.gaps.Load(), Lost: c.lost.Load(),
	}
}

type counts struct {
	by         [len(verdictNames)]atomic.Int64
	gaps, lost atomic.Int64
	events     metric.Int64Counter
	options    [len(verdictNames)]metric.AddOption
}

// scope names the instrumentation of this package.
const scope = "github.com/gooutbox/outbox/consumer/dedupe"

func newCounts(cfg Config) (*counts, error) {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = noop.NewMeterProvider()
	}
	events, err := cfg.MeterProvider.Meter(scope).Int64Counter("outbox.dedupe.events", metric.WithUnit("{event}"),
		metric.WithDescription("Deliveries by what was made of them: fresh, repeated, stale, in_flight or unknown."))
	if err != nil {
		return nil, fmt.Errorf("making the counter: %w", err)
	}
	c := &counts{events: events}
	for v := range verdictNames {
		c.options[v] = metric.WithAttributes(attribute.String("consumer", cfg.Consumer), attribute.String("verdict", verdictNames[v]))
	}
	return c, nil
}

func (c *counts) add(ctx context.Context, v Verdict) Verdict {
	c.by[v].Add(1)
	c.events.Add(ctx, 1, c.options[v])
	return v
}

func (c *counts) gap() { c.gaps.Add(1) }
