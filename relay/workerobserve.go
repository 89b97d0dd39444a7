package relay

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
)

// observe registers the gauges of workers and queue, and returns what ends that.
// The counts of the queue are told by each process, where its store can count.
func (is *jobInstruments) observe(r *Relay) (stop func(), err error) {
	var last answer[core.Stats]
	stored := newStored(r.cfg.Sinks)
	admin, counts := r.cfg.Queue.(core.Admin)
	registration, err := is.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		for _, w := range r.workers {
			s := w.status()
			o.ObserveInt64(is.ahead, int64(s.Ahead), w.metrics.only)
			o.ObserveInt64(is.jobsInFlight, int64(s.InFlight), w.metrics.only)
		}
		if !counts {
			return nil
		}
		if stats, known := last.of(func() (core.Stats, error) { return admin.Stats(ctx) }); known {
			is.observeStats(o, &stats, stored.with(stats.Sinks))
		}
		return nil
	}, is.ahead, is.jobsInFlight, is.pauses, is.byState, is.oldest)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil
}

func (is *jobInstruments) observeStats(o metric.Observer, stats *core.Stats, sinks []core.SinkStats) {
	pauses := map[core.PauseScope]int64{core.PauseSink: 0, core.PauseTenant: 0, core.PauseDomain: 0}
	for _, p := range stats.Pauses {
		pauses[p.Scope]++
	}
	for scope, n := range pauses {
		o.ObserveInt64(is.pauses, n, metric.WithAttributes(attribute.String("outbox.pause.scope", string(scope))))
	}
	for i := range sinks {
		s := &sinks[i]
		sink := attribute.String("outbox.sink", s.Sink)
		o.ObserveFloat64(is.oldest, s.OldestReady.Seconds(), metric.WithAttributes(sink))
		for state, n := range map[string]int64{
			"ready": s.Ready, "delayed": s.Delayed, "active": s.Active, "failed": s.Failed, "unknown": s.Unknown,
		} {
			o.ObserveInt64(is.byState, n, metric.WithAttributes(sink, attribute.String("outbox.state", state)))
		}
	}
}

// stored are the sinks of which jobs are told: those of the configuration, and
// those that jobs were seen of. One that has none any more has 0, so that what
// watches the gauge sees it fall. Its methods may be called by several goroutines
// at once.
type stored struct {
	mu    sync.Mutex
	sinks map[string]bool
}

func newStored(sinks map[string]core.Sink) *stored {
	s := &stored{sinks: map[string]bool{}}
	for name := range sinks {
		s.sinks[name] = true
	}
	return s
}

// with is what the store counted, completed by the sinks that have nothing.
func (s *stored) with(counted []core.SinkStats) []core.SinkStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(counted)
	missing := maps.Clone(s.sinks)
	for i := range counted {
		s.sinks[counted[i].Sink] = true
		delete(missing, counted[i].Sink)
	}
	for name := range missing {
		all = append(all, core.SinkStats{Sink: name})
	}
	return all
}
