package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	opTakeBack  = "taking back jobs"
	opCleanJobs = "removing old jobs"
	// upkeepTimeout bounds one call of the store.
	upkeepTimeout = 30 * time.Second
	// takeBackLimit bounds the jobs of one call.
	takeBackLimit = 1000
)

// takeBack looks for leases that ran out, each third of a lease. Every process
// of a queue does, also one that only runs routes: each takes back what is for
// sinks that it knows, so that it can tell which of them must not repeat.
func (r *Relay) takeBack(ctx context.Context) {
	req := core.TakeBackRequest{
		MaxRedeliveries: r.cfg.MaxRedeliveries, Reservations: r.cfg.Reservations,
		Sinks: slices.Sorted(maps.Keys(r.cfg.Sinks)), Limit: takeBackLimit,
	}
	for _, name := range req.Sinks {
		if core.CapabilitiesOf(r.cfg.Sinks[name]).NoRepeat {
			req.NoRepeat = append(req.NoRepeat, name)
		}
	}
	for _, rt := range r.routes {
		if !rt.caps.NoRepeat { // else only a known sink tells what must not be sent again
			req.Cursors = append(req.Cursors, rt.cfg.Name)
		}
	}
	every := core.DefaultJobLease
	if len(r.routes) > 0 { // parked jobs are lent for as long as their cursor
		every = min(every, r.cfg.CursorLease)
	}
	for i := range r.cfg.Workers {
		every = min(every, r.cfg.Workers[i].Lease)
	}
	r.upkeep(ctx, every/3, opTakeBack, func(ctx context.Context) (again bool, err error) {
		got, err := r.cfg.Queue.TakeBack(ctx, req)
		r.jobMetrics.tookBack(got)
		if got.Crashed+got.Unknown > 0 {
			r.cfg.Logger.Error("jobs ended whose leases ran out: list them by the codes crashed and unknown, and retry or discard them",
				"crashed", got.Crashed, "unknown", got.Unknown)
		}
		return got.Ready+got.Crashed+got.Unknown >= req.Limit, err
	})
}

// cleanJobs removes failed jobs whose retention ended.
func (r *Relay) cleanJobs(ctx context.Context) {
	r.upkeep(ctx, r.cfg.CleanInterval, opCleanJobs, func(ctx context.Context) (bool, error) {
		removed, err := r.cfg.Queue.CleanJobs(ctx)
		r.jobMetrics.cleanedJobs(removed)
		return false, err
	})
}

// upkeep does something from time to time, first after a part of that time, so
// that processes that started together don't stay together.
func (r *Relay) upkeep(ctx context.Context, every time.Duration, op string, do func(context.Context) (again bool, err error)) {
	for sleep(ctx, jitter(every)) {
		for again := true; again && ctx.Err() == nil; {
			limited, cancel := context.WithTimeout(ctx, upkeepTimeout)
			var err error
			again, err = do(limited)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				r.jobStore.failed(op, err)
				again = false
			default:
				r.jobStore.ok(op)
			}
		}
	}
}
