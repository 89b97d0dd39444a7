package relay

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
)

// lagEvery is how often the store is asked for a lag at most, however often
// metrics are collected; lagTimeout is how long its answers may hold up one
// collection.
const (
	lagEvery   = 15 * time.Second
	lagTimeout = 5 * time.Second
)

// lagCache remembers the last answer about a cursor.
type lagCache struct {
	mu    sync.Mutex
	asked time.Time
	lag   core.Lag
	known bool
}

// of asks the log, unless it did so lately, and tells whether the lag is known.
func (c *lagCache) of(ctx context.Context, log core.Log, cursor string) (core.Lag, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.asked.IsZero() || now.Sub(c.asked) >= lagEvery {
		lag, err := log.Lag(ctx, cursor)
		c.asked, c.lag, c.known = now, lag, err == nil
	}
	return c.lag, c.known
}

// observe registers the gauges of a relay that runs, and returns what ends
// that. Every process tells the lag, also one that stands by: it matters most
// when no one delivers.
func (is *instruments) observe(r *Relay) (stop func(), err error) {
	lags := make([]lagCache, len(r.routes))
	registration, err := is.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		for i, rt := range r.routes {
			with := rt.metrics.observe
			s := rt.status()
			o.ObserveInt64(is.window, int64(s.Window), with...)
			o.ObserveInt64(is.inFlight, int64(s.InFlight), with...)
			o.ObserveInt64(is.blocked, int64(s.BlockedKeys), with...)
			o.ObserveInt64(is.parkedJobs, int64(s.Parked), with...)
			o.ObserveInt64(is.held, int64(s.HeldKeys), with...)
			holding := int64(0)
			if s.State != Standby {
				holding = 1
			}
			o.ObserveInt64(is.holding, holding, with...)
			if lag, known := lags[i].of(ctx, r.cfg.Log, rt.cfg.Name); known {
				o.ObserveInt64(is.lagEvents, lag.Events, with...)
				o.ObserveFloat64(is.lagAge, lag.Age.Seconds(), with...)
			}
		}
		return nil
	}, is.window, is.inFlight, is.blocked, is.parkedJobs, is.held, is.holding, is.lagEvents, is.lagAge)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil
}
