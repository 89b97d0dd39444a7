package relay

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
)

// observe registers the gauges of a relay that runs, and returns what ends
// that. Every process tells the lag, also one that stands by: it matters most
// when no one delivers.
func (is *instruments) observe(r *Relay) (stop func(), err error) {
	lags := make([]answer[core.Lag], len(r.routes))
	registration, err := is.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
			ask := func() (core.Lag, error) { return r.cfg.Log.Lag(ctx, rt.cfg.Name) }
			if lag, known := lags[i].of(ask); known {
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
