package relay

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// clean runs the log's cleaner from time to time while this process holds a
// cursor, so that of a fleet only those clean who are at work.
func (r *Relay) clean(ctx context.Context) {
	fails := trouble{
		log:   r.cfg.Logger,
		begin: "removing old events fails: it is tried again", end: "removing old events works again",
	}
	req := core.CleanRequest{Retention: r.cfg.Retention}
	for i := range r.cfg.Routes {
		req.Cursors = append(req.Cursors, r.cfg.Routes[i].Name)
	}
	heldBy := ""
	for sleep(ctx, jitter(r.cfg.CleanInterval)) {
		if !slices.ContainsFunc(r.routes, (*route).holding) {
			continue
		}
		result, err := r.cfg.Log.Clean(ctx, req)
		r.metrics.cleaned(result.Removed)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			fails.failed("cleaning", err)
			continue
		}
		fails.ok("cleaning")
		if result.HeldBy != heldBy && result.HeldBy != "" && !slices.Contains(req.Cursors, result.HeldBy) {
			r.cfg.Logger.Warn("a cursor that this relay doesn't run keeps events from being removed: run it, or forget it",
				"cursor", result.HeldBy)
		}
		heldBy = result.HeldBy
	}
}

// jitter is d or up to a fifth less, so that processes that started together do
// not stay together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - 0.2*rand.Float64()))
}
