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

// takeBack looks for leases that ran out, each third of a job's lease. Every process
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
	var ended []FailedJob
	req.Ended = func(id string, as core.JobState) {
		code := core.CodeCrashed
		if as == core.JobUnknown {
			code = core.CodeUnknown
		}
		ended = append(ended, FailedJob{ID: id, Failure: core.Failure{Code: code}})
	}
	every := core.DefaultJobLease
	for i := range r.cfg.Workers {
		every = min(every, r.cfg.Workers[i].Lease)
	}
	often := every
	if len(r.routes) > 0 {
		often = min(every, r.cfg.CursorLease)
	}
	looked := time.Now()
	due := func() bool { return r.tookOver() || time.Since(looked) > every/3-often/6 }
	r.upkeep(ctx, often/3, opTakeBack, due, func(ctx context.Context) (again bool, err error) {
		looked = time.Now()
		ended = nil
		got, err := r.cfg.Queue.TakeBack(ctx, req)
		r.jobMetrics.tookBack(got)
		if got.Crashed+got.Unknown > 0 {
			r.cfg.Logger.Error("jobs ended whose leases ran out: list them by the codes crashed and unknown, and retry or discard them",
				"crashed", got.Crashed, "unknown", got.Unknown)
		}
		r.tellEnded(ctx, ended)
		return got.Ready+got.Crashed+got.Unknown >= req.Limit, err
	})
}

// tellEnded calls the hook for jobs that taking back has ended. What the store
// can't tell of a job stays empty.
func (r *Relay) tellEnded(ctx context.Context, ended []FailedJob) {
	if r.cfg.OnFailed == nil {
		return
	}
	admin, looks := r.cfg.Queue.(core.Admin)
	for _, j := range ended {
		if looks {
			if info, err := admin.Job(ctx, j.ID); err == nil {
				if info.Failure.Code != j.Failure.Code {
					continue // its holder was first after all
				}
				j = FailedJob{
					ID: j.ID, EventID: info.EventID, Key: info.AggregateID, Type: info.Type, Tenant: info.Tenant,
					Sink: info.Sink, Route: info.Cursor, Attempts: info.Attempts, Failure: info.Failure,
				}
			}
		}
		r.onFailed(ctx, j)
	}
}

// tookOver tells whether this process got a cursor so lately that jobs of it may
// still be lent to a former holder, for as long as their cursor: they block their
// keys, so it is looked more often.
func (r *Relay) tookOver() bool {
	for _, rt := range r.routes {
		if since, holding := rt.holdingSince(); holding && time.Since(since) < 2*r.cfg.CursorLease+core.TakeBackGrace {
			return true
		}
	}
	return false
}

// cleanJobs removes failed jobs whose retention ended.
func (r *Relay) cleanJobs(ctx context.Context) {
	always := func() bool { return true }
	r.upkeep(ctx, r.cfg.CleanInterval, opCleanJobs, always, func(ctx context.Context) (bool, error) {
		removed, err := r.cfg.Queue.CleanJobs(ctx)
		r.jobMetrics.cleanedJobs(removed)
		return false, err
	})
}

// upkeep does something from time to time where it is due then. The times have
// some jitter, so that processes that started together don't stay together.
func (r *Relay) upkeep(
	ctx context.Context, every time.Duration, op string, due func() bool, do func(context.Context) (again bool, err error),
) {
	for sleep(ctx, jitter(every)) {
		for again := due(); again && ctx.Err() == nil; {
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

// holdingSince tells whether this process holds the cursor, and since when.
func (rt *route) holdingSince() (time.Time, bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.since, rt.term != nil
}
