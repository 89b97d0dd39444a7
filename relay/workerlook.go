package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

const (
	// claimTimeout bounds a claim and the questions before it.
	claimTimeout = 10 * time.Second
	// soonAgain is from how many jobs on a claim that got fewer than it asked for
	// is followed by another look at once.
	soonAgain = 10
	// mostSpread is over how many jobs claims are spread where others claim at the
	// same time.
	mostSpread = 4 * maxAhead
	// lowerEvery is how many claims in a row may leave out the lower classes.
	lowerEvery = 10
)

// claimSome looks whether jobs are due, and claims some. It returns when to look
// again.
func (w *worker) claimSome(ctx context.Context, want int) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	c, sure := &w.claims, !w.claims.more
	c.more = false
	if sure && !w.chooses() {
		wait, due, err := w.due(ctx, nil)
		if err != nil || !due {
			return wait, err
		}
	}
	if err := w.relay.pauses.refresh(ctx, pausesFresh); err != nil {
		return 0, err
	}
	if _, paused := w.relay.pauses.sink(w.cfg.Sink); paused {
		return 0, nil
	}
	if err := c.tenants.load(ctx, w.relay.cfg.Queue, w.cfg.Sink, sure); err != nil {
		return 0, err
	}
	if w.chooses() {
		return w.claimChosen(ctx, want, sure)
	}
	var names []string // any tenant
	if !c.tenants.one() {
		names = c.tenants.page
	}
	return w.claimOf(ctx, want, names, sure)
}

// chooses tells whether some tenants may have to be left out: then the others
// are known before it is asked whether jobs are due.
func (w *worker) chooses() bool {
	return w.cfg.TenantRate > 0 || len(w.relay.pauses.pausedTenants()) > 0
}

// claimChosen claims jobs of the tenants that are neither paused nor at their
// rate.
func (w *worker) claimChosen(ctx context.Context, want int, sure bool) (again time.Duration, err error) {
	names, room, later := w.allowed(time.Now())
	defer func() { // some may be allowed earlier than it is looked again
		if !later.IsZero() {
			again = min(again, max(time.Until(later), time.Millisecond))
		}
		for _, one := range w.relay.pauses.pausedTenants() {
			again = min(again, nextLook(one, time.Now()))
		}
	}()
	if len(names) == 0 {
		w.claims.more = w.claims.tenants.turn()
		return w.rest(0, false), nil
	}
	if sure {
		wait, due, err := w.due(ctx, names)
		if err != nil || !due {
			w.claims.more = err == nil && w.claims.tenants.turn()
			return wait, err
		}
	}
	return w.claimOf(ctx, min(want, room), names, sure)
}

// due asks whether jobs of some tenants, nil for any, are due; if not, also how
// long to wait.
func (w *worker) due(ctx context.Context, names []string) (wait time.Duration, due bool, err error) {
	in, some, err := w.relay.cfg.Queue.NextDue(ctx, w.cfg.Sink, names)
	if err != nil {
		return 0, false, err
	}
	if some && in <= 0 {
		if w.claims.less { // others claim beside this one: don't pick the same
			w.claims.spread = mostSpread
		}
		return 0, true, nil
	}
	if c := &w.claims; c.rung && c.turn == anyTurn {
		c.turn = laterTurn // another process was first
	}
	return w.rest(in, some), false, nil
}

// claimOf claims jobs of some tenants, nil for any.
func (w *worker) claimOf(ctx context.Context, want int, names []string, sure bool) (again time.Duration, err error) {
	c := &w.claims
	req := core.ClaimRequest{
		Sink: w.cfg.Sink, Max: want, Lease: w.cfg.Lease, Owner: w.relay.cfg.Owner, Tenants: names, FromRank: w.fromRank(sure),
	}
	if sure && want == 1 { // a claim of one may write before it looks
		if wait, due, err := w.due(ctx, names); err != nil || !due {
			return wait, err
		}
	}
	if c.spread > 0 {
		req.Spread = rand.N(c.spread)
	}
	began := time.Now()
	jobs, err := w.relay.cfg.Queue.Claim(ctx, req)
	if err != nil {
		return 0, err
	}
	if len(jobs) > 0 {
		crash.Here("relay.job-claimed")
	}
	w.metrics.claimed(jobs)
	w.got(jobs, req, time.Since(began))
	c.more = len(jobs) == req.Max || req.FromRank > 0
	c.less = len(jobs) < req.Max
	if !c.less {
		c.spread -= c.spread / 16
	}
	if names != nil && c.tenants.turn() {
		c.more = true
	}
	if len(jobs) > 0 {
		c.turn, c.poll = firstTurn, firstPoll
	} else { // others got them
		c.turn, c.poll = laterTurn, min(2*c.poll, w.relay.poll())
	}
	if len(jobs) >= soonAgain {
		return 0, nil // others claimed beside it, or it was the last: look
	}
	return jitter(c.poll), nil
}

// rest is how long to wait for a bell when nothing is due: until the next job
// is, and no longer than a poll, which comes later each time.
func (w *worker) rest(due time.Duration, some bool) time.Duration {
	c := &w.claims
	c.poll = min(2*c.poll, w.relay.poll())
	if w.relay.watching.Load() {
		c.poll = w.relay.poll()
	}
	wait := jitter(c.poll)
	if some && due < wait {
		return due + w.wakeDelay()
	}
	return wait
}

// fromRank leaves out the higher classes in one claim of ten while they have
// more jobs than are claimed: those below them, and those below the next, in
// turn. sure tells that the claim before did not get all that it asked for.
func (w *worker) fromRank(sure bool) int {
	c := &w.claims
	if sure || c.lowest >= core.Low.Rank() {
		c.full = 0
		return 0
	}
	if c.full++; c.full < lowerEvery {
		return 0
	}
	c.full = 0
	if c.lower++; c.lower > core.Low.Rank() || c.lower <= c.lowest {
		c.lower = c.lowest + 1
	}
	return c.lower
}
