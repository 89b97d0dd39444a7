package relay

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
)

// scope names the instrumentation of this package.
const scope = "github.com/gooutbox/outbox/relay"

// instruments are those of a relay. Routes add their attributes.
type instruments struct {
	meter metric.Meter

	delivered, refused, unknown, unavailable, failedEvents metric.Int64Counter
	terms, lost, removed                                   metric.Int64Counter
	parkedEvents                                           metric.Int64Counter
	duration                                               metric.Float64Histogram
	size                                                   metric.Int64Histogram

	lagEvents, window, inFlight, blocked, holding metric.Int64ObservableGauge
	parkedJobs, held                              metric.Int64ObservableGauge
	lagAge                                        metric.Float64ObservableGauge
}

func newInstruments(provider metric.MeterProvider) (*instruments, error) {
	m := provider.Meter(scope)
	is := &instruments{meter: m}
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	counter := func(to *metric.Int64Counter, name, unit, description string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		*to = c
	}
	gauge := func(to *metric.Int64ObservableGauge, name, unit, description string) {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		*to = g
	}
	counter(&is.delivered, "outbox.relay.delivered", "{event}", "Events that a sink confirmed.")
	counter(&is.refused, "outbox.relay.refused", "{event}", "Events that a sink refused for now.")
	counter(&is.unknown, "outbox.relay.unknown", "{event}", "Events that were sent and not answered.")
	counter(&is.unavailable, "outbox.relay.unavailable", "{event}", "Events that were not taken because the sink was unavailable or throttled.")
	counter(&is.failedEvents, "outbox.relay.failed", "{event}", "Events that were set aside as failed for good.")
	counter(&is.parkedEvents, "outbox.relay.parked", "{event}", "Events that were handed to the queue: refused ones, and those behind them.")
	counter(&is.terms, "outbox.relay.terms", "{term}", "How often a cursor was acquired.")
	counter(&is.lost, "outbox.relay.terms.lost", "{term}", "How often a cursor was lost rather than given back.")
	counter(&is.removed, "outbox.relay.cleaned", "{event}", "Events that the cleaner removed from the log.")
	gauge(&is.lagEvents, "outbox.relay.lag.events", "{event}", "Events that a cursor has still to settle, up to a bound of the store's.")
	gauge(&is.window, "outbox.relay.window", "{event}", "Events read beyond the saved position.")
	gauge(&is.inFlight, "outbox.relay.in_flight", "{event}", "Events that a sink is being called with.")
	gauge(&is.blocked, "outbox.relay.blocked", "{key}", "Keys whose next event waits after a failure.")
	gauge(&is.parkedJobs, "outbox.relay.parked.open", "{job}", "Parked events that are still to be delivered, or that hold their key.")
	gauge(&is.held, "outbox.relay.held", "{key}", "Keys that are held by an event that failed for good.")
	gauge(&is.holding, "outbox.relay.holding", "{cursor}", "1 while this process holds the cursor.")
	var err error
	is.lagAge, err = m.Float64ObservableGauge("outbox.relay.lag", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest event that a cursor has still to settle."))
	keep(err)
	is.duration, err = m.Float64Histogram("outbox.relay.delivery.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls to a sink took."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60))
	keep(err)
	is.size, err = m.Int64Histogram("outbox.relay.batch.size", metric.WithUnit("{event}"),
		metric.WithDescription("How many events a call to a sink had."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000))
	keep(err)
	return is, first
}

func (is *instruments) cleaned(n int64) {
	if n > 0 {
		is.removed.Add(context.Background(), n)
	}
}

// routeMetrics are the instruments of one route.
type routeMetrics struct {
	*instruments
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
	route   []attribute.KeyValue
}

func (is *instruments) forRoute(r *Route) *routeMetrics {
	attrs := []attribute.KeyValue{attribute.String("outbox.route", r.Name), attribute.String("outbox.sink", r.Sink)}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &routeMetrics{
		instruments: is, route: attrs,
		add: []metric.AddOption{set}, record: []metric.RecordOption{set}, observe: []metric.ObserveOption{set},
	}
}

// called counts one call to the sink.
func (m *routeMetrics) called(took time.Duration, events int, n tally) {
	ctx := context.Background()
	m.duration.Record(ctx, took.Seconds(), m.record...)
	m.size.Record(ctx, int64(events), m.record...)
	for _, c := range []struct {
		counter metric.Int64Counter
		n       int
	}{
		{m.delivered, n[core.Delivered]},
		{m.refused, n[core.Refused]},
		{m.unknown, n[core.Unknown]},
		{m.unavailable, n[core.Unavailable] + n[core.Throttled]},
	} {
		if c.n > 0 {
			c.counter.Add(ctx, int64(c.n), m.add...)
		}
	}
}

// failed counts an event that was set aside.
func (m *routeMetrics) failed(code string) {
	m.failedEvents.Add(context.Background(), 1, metric.WithAttributes(
		append(m.route[:len(m.route):len(m.route)], attribute.String("outbox.failure.code", code))...))
}

// parked counts events that were handed to the queue.
func (m *routeMetrics) parked(n int) {
	if n > 0 {
		m.parkedEvents.Add(context.Background(), int64(n), m.add...)
	}
}

func (m *routeMetrics) began() { m.terms.Add(context.Background(), 1, m.add...) }

// ended counts a term that was lost.
func (m *routeMetrics) ended(lost error) {
	if lost != nil {
		m.lost.Add(context.Background(), 1, m.add...)
	}
}
