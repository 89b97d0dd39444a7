package relay_test

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestMetricsTellWhatBecameOfJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		reader := sdkmetric.NewManualReader()
		k.sink.reply = func(l core.Lease, n int) core.Result {
			switch {
			case l.Event.ID == "bad":
				return outcome(core.Rejected)
			case l.Event.ID == "late" && n < 3:
				return outcome(core.Refused)
			}
			return core.Result{Outcome: core.Delivered}
		}
		delayed := job("delayed")
		delayed.NotBefore = time.Now().Add(time.Hour)
		stray := job("stray")
		stray.Sink = "nobody"
		k.enqueue(job("a", prio(core.High), tenant("x")), job("b", tenant("y")), job("bad"), job("late"), delayed, stray)
		r := k.start(working(), func(c *relay.Config) {
			c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		pause := core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "z"}, For: time.Hour, By: "me"}
		if err := k.store.Pause(t.Context(), pause); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		got := k.points(reader)
		for name, want := range map[string]float64{
			"outbox.relay.jobs outbox.outcome=delivered outbox.sink=s":                             3,
			"outbox.relay.jobs outbox.outcome=refused outbox.sink=s":                               2,
			"outbox.relay.jobs outbox.outcome=rejected outbox.sink=s":                              1,
			"outbox.relay.jobs.failed outbox.failure.code=rejected outbox.sink=s":                  1,
			"outbox.relay.claims.jobs outbox.sink=s":                                               6,
			"outbox.relay.jobs.wait outbox.priority=high outbox.sink=s outbox.tenant.class=some":   1,
			"outbox.relay.jobs.wait outbox.priority=normal outbox.sink=s outbox.tenant.class=some": 1,
			"outbox.relay.jobs.wait outbox.priority=normal outbox.sink=s outbox.tenant.class=none": 4,
			"outbox.relay.jobs.attempts outbox.sink=s":                                             4,
			"outbox.relay.jobs.stored outbox.sink=s outbox.state=delayed":                          1,
			"outbox.relay.jobs.stored outbox.sink=s outbox.state=failed":                           1,
			"outbox.relay.jobs.stored outbox.sink=nobody outbox.state=ready":                       1,
			"outbox.relay.jobs.oldest outbox.sink=nobody":                                          10,
			"outbox.relay.pauses outbox.pause.scope=tenant":                                        1,
			"outbox.relay.pauses outbox.pause.scope=sink":                                          0,
			"outbox.relay.jobs.ahead outbox.sink=s":                                                0,
			"outbox.relay.jobs.in_flight outbox.sink=s":                                            0,
		} {
			if v, there := got[name]; !there || v != want {
				t.Errorf("%s: got %v, there %v, want %v", name, v, there, want)
			}
		}
		r.stop()
		if _, there := k.points(reader)["outbox.relay.jobs.ahead outbox.sink=s"]; there {
			t.Error("gauges of a relay that has stopped")
		}
	})
}

func TestAStoreThatDidNotAnswerIsAskedAgainSoonAndNotAtEachCollection(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		reader := sdkmetric.NewManualReader()
		k.append("a1")
		k.enqueue(job("j"))
		away := errors.New("away")
		k.faults.set(away, memory.OpLag, memory.OpAdmin)
		r := k.start(working(), func(c *relay.Config) {
			c.Log, c.Routes = k.store, []relay.Route{{Name: "r", Sink: "s"}}
			c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		const lag, stored = "outbox.relay.lag.events outbox.route=r outbox.sink=s", "outbox.relay.jobs.stored outbox.sink=s outbox.state=ready"
		known := func() bool {
			got := k.points(reader)
			_, hasLag := got[lag]
			_, hasStored := got[stored]
			equal(t, "both or none", hasLag, hasStored)
			return hasLag
		}
		equal(t, "told while the store is away", known(), false)
		k.faults.set(nil, memory.OpLag, memory.OpAdmin)
		pass(time.Second)
		equal(t, "told a second after the first failure", known(), true)

		pass(time.Minute)
		k.faults.set(away, memory.OpLag, memory.OpAdmin)
		before := k.faults.count(memory.OpLag)
		for range 600 {
			known()
			pass(100 * time.Millisecond)
		}
		if n := k.faults.count(memory.OpLag) - before; n < 4 || n > 12 {
			t.Errorf("in a minute of an outage, with 600 collections, the store was asked %d times", n)
		}
		k.faults.set(nil, memory.OpLag, memory.OpAdmin)
		pass(20 * time.Second)
		equal(t, "told after the outage", known(), true)
		r.stop()
	})
}

func TestGaugesOfStoredJobsFallToZeroAndStay(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		reader := sdkmetric.NewManualReader()
		stray := job("stray")
		stray.Sink = "nobody"
		ids := k.enqueue(stray)
		r := k.start(working(), func(c *relay.Config) {
			c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		pass(time.Second)
		check := func(nobody float64) {
			t.Helper()
			got := k.points(reader)
			for _, state := range []string{"ready", "delayed", "active", "failed", "unknown"} {
				want := 0.0
				if state == "ready" {
					want = nobody
				}
				for sink, want := range map[string]float64{"s": 0, "nobody": want} {
					name := "outbox.relay.jobs.stored outbox.sink=" + sink + " outbox.state=" + state
					if v, there := got[name]; !there || v != want {
						t.Errorf("%s: got %v, there %v, want %v", name, v, there, want)
					}
				}
			}
			if _, there := got["outbox.relay.jobs.oldest outbox.sink=nobody"]; !there {
				t.Error("the age of the oldest job vanished")
			}
		}
		check(1)
		if _, err := k.store.Discard(t.Context(), core.JobFilter{IDs: ids}, core.Act{By: "me"}); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		check(0)
		r.stop()
	})
}

// points returns the sums, gauges and histogram counts by name and attributes.
func (k *kit) points(reader *sdkmetric.ManualReader) map[string]float64 {
	k.t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(k.t.Context(), &data); err != nil {
		k.t.Fatal(err)
	}
	got := map[string]float64{}
	add := func(name string, attrs attribute.Set, v float64) {
		for _, a := range attrs.ToSlice() {
			name += " " + string(a.Key) + "=" + a.Value.AsString()
		}
		got[name] += v
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
