package relay_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestMetricsTellWhatBecameOfEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		reader := sdkmetric.NewManualReader()
		k.sink.reply = func(l core.Lease, n int) core.Result {
			switch {
			case l.Event.ID == "b1":
				return outcome(core.Rejected)
			case l.Event.ID == "c1":
				return outcome(core.Refused)
			case l.Event.ID == "d1" && n == 1:
				return outcome(core.Unknown)
			case l.Event.ID == "e1" && n == 1:
				return outcome(core.Unavailable)
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "b1", "c1", "d1", "e1")
		r := k.start(func(c *relay.Config) {
			c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		pass(20 * time.Second)
		got := k.collect(reader)
		want := map[string]float64{
			"outbox.relay.delivered": 3, "outbox.relay.failed": 1, "outbox.relay.unknown": 1,
			"outbox.relay.unavailable": 1, "outbox.relay.terms": 1, "outbox.relay.holding": 1,
			"outbox.relay.blocked": 1, "outbox.relay.in_flight": 0, "outbox.relay.window": 3,
			"outbox.relay.lag.events": 3, "outbox.relay.lag": 20,
		}
		for name, n := range want {
			if v, there := got[name]; !there || v != n {
				t.Errorf("%s: got %v, there %v, want %v", name, v, there, n)
			}
		}
		if got["outbox.relay.refused"] < 3 {
			t.Errorf("refused: %v", got["outbox.relay.refused"])
		}
		equal(t, "calls in the histograms", got["outbox.relay.batch.size"], float64(k.sink.callCount()))
		equal(t, "calls in the histograms", got["outbox.relay.delivery.duration"], float64(k.sink.callCount()))

		asked := k.faults.count(memory.OpLag)
		for range 10 {
			pass(time.Second)
			k.collect(reader)
		}
		equal(t, "the store was asked for the lag in ten seconds", k.faults.count(memory.OpLag)-asked, 0)
		pass(10 * time.Second)
		k.collect(reader)
		equal(t, "and after fifteen", k.faults.count(memory.OpLag)-asked, 1)
		r.stop()
		if _, there := k.collect(reader)["outbox.relay.lag.events"]; there {
			t.Error("gauges of a relay that has stopped")
		}
	})
}

// collect returns the sums, gauges and histogram counts of route "r".
func (k *kit) collect(reader *sdkmetric.ManualReader) map[string]float64 {
	k.t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(k.t.Context(), &data); err != nil {
		k.t.Fatal(err)
	}
	got := map[string]float64{}
	add := func(name string, attrs attribute.Set, v float64) {
		if route, _ := attrs.Value("outbox.route"); route.AsString() == "r" {
			got[name] += v
		}
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return got
}

func TestASpanForEachCallLinksToTheTracesOfItsEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.ID == "b1" {
				return outcome(core.Rejected)
			}
			return core.Result{Outcome: core.Delivered}
		}
		traced := event("a1")
		traced.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		k.appendEvents(traced, event("b1"))
		r := k.start(func(c *relay.Config) { c.TracerProvider = provider })
		pass(time.Second)
		ended := spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%d spans", len(ended))
		}
		span := ended[0]
		equal(t, "name", span.Name(), "send s")
		if links := span.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("links: %+v", links)
		}
		equal(t, "status", span.Status().Description, "1 of 2 events were not delivered")
		r.stop()
	})
}
