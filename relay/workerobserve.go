package relay

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
)

// statsEvery is how often the queue is counted at most, however often metrics
// are collected.
const statsEvery = 15 * time.Second

// statsCache remembers the last counts of the queue.
type statsCache struct {
	mu    sync.Mutex
	asked time.Time
	stats core.Stats
	known bool
}

// of asks the store, unless it did so lately, and tells whether the counts are
// known.
func (c *statsCache) of(ctx context.Context, admin core.Admin) (core.Stats, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.asked.IsZero() || now.Sub(c.asked) >= statsEvery {
		stats, err := admin.Stats(ctx)
		c.asked, c.stats, c.known = now, stats, err == nil
	}
	return c.stats, c.known
}

// observe registers the gauges of workers and queue, and returns what ends that.
// The counts of the queue are told by each process, where its store can count.
func (is *jobInstruments) observe(r *Relay) (stop func(), err error) {
	var cache statsCache
	admin, counts := r.cfg.Queue.(core.Admin)
	registration, err := is.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		for _, w := range r.workers {
			s := w.status()
			o.ObserveInt64(is.ahead, int64(s.Ahead), w.metrics.only)
			o.ObserveInt64(is.jobsInFlight, int64(s.InFlight), w.metrics.only)
		}
		if !counts {
			return nil
		}
		if stats, known := cache.of(ctx, admin); known {
			is.observeStats(o, &stats)
		}
		return nil
	}, is.ahead, is.jobsInFlight, is.pauses, is.byState, is.oldest)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil
}

func (is *jobInstruments) observeStats(o metric.Observer, stats *core.Stats) {
	pauses := map[core.PauseScope]int64{core.PauseSink: 0, core.PauseTenant: 0}
	for _, p := range stats.Pauses {
		pauses[p.Scope]++
	}
	for scope, n := range pauses {
		o.ObserveInt64(is.pauses, n, metric.WithAttributes(attribute.String("outbox.pause.scope", string(scope))))
	}
	for i := range stats.Sinks {
		s := &stats.Sinks[i]
		sink := attribute.String("outbox.sink", s.Sink)
		o.ObserveFloat64(is.oldest, s.OldestReady.Seconds(), metric.WithAttributes(sink))
		for state, n := range map[string]int64{
			"ready": s.Ready, "delayed": s.Delayed, "active": s.Active, "failed": s.Failed, "unknown": s.Unknown,
		} {
			o.ObserveInt64(is.byState, n, metric.WithAttributes(sink, attribute.String("outbox.state", state)))
		}
	}
}
