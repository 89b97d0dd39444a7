package relay

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	opClaim = "claiming jobs"
	// wakeSpread is over how long processes spread what they do when a bell
	// rings. One that got the jobs the last time comes first, within wakeFirst, and
	// those that found none after wakeOthers, so that nothing is left for them to
	// claim.
	wakeSpread = 50 * time.Millisecond
	wakeFirst  = 2 * time.Millisecond
	wakeOthers = 25 * time.Millisecond
	// firstPoll is when it is looked again after there was work, if nothing
	// tells of changes.
	firstPoll = 50 * time.Millisecond
)

// claims is what the claimer knows. Only its goroutine uses it.
type claims struct {
	tenants tenants
	more    bool          // the last claim got all that it asked for
	poll    time.Duration // how long to wait for a bell
	turn    turn          // when this process comes when a bell rings
	rung    bool          // a bell made it look
	full    int           // claims in a row that may have left out lower classes
	lowest  int           // rank of the lowest class of the last claim
	less    bool          // the last claim got less than it asked for
	spread  int           // over how many jobs claims are spread, see core.ClaimRequest
	lower   int           // from which rank on the last claim for lower classes was
}

// turn is when a process comes among those that a bell wakes.
type turn uint8

const (
	anyTurn   turn = iota // not known yet
	firstTurn             // it got jobs the last time
	laterTurn             // it found none
)

func newClaims() claims { return claims{poll: firstPoll} }

// claim keeps jobs at hand until ctx ends.
func (w *worker) claim(ctx context.Context) {
	bell := w.relay.bells.hang(w.cfg.Sink)
	defer w.relay.bells.takeDown(bell)
	waits := w.relay.cfg.StoreBackoff.start()
	next := time.Now() // when to look whether jobs are due
	for ctx.Err() == nil {
		now := time.Now()
		want, wait := w.want(now)
		if one, paused := w.relay.pauses.sink(w.cfg.Sink); paused {
			if w.wait(ctx, bell, nextLook(one, now), true) {
				sleep(ctx, w.wakeDelay())
			}
			if err := w.relay.pauses.refresh(ctx, pausesFresh/2); err != nil && ctx.Err() == nil {
				sleep(ctx, waits.next())
			}
			next = now
			continue
		}
		if want > 0 && (w.claims.more || !now.Before(next)) {
			again, err := w.claimSome(ctx, want)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				w.relay.jobStore.failed(opClaim, err)
				w.claims.more = false
				sleep(ctx, waits.next())
				continue
			}
			w.relay.jobStore.ok(opClaim)
			waits = w.relay.cfg.StoreBackoff.start()
			next = time.Now().Add(again)
			continue
		}
		if want > 0 {
			wait = sooner(next.Sub(now), wait)
		}
		w.claims.rung = w.wait(ctx, bell, orForever(wait), want > 0)
		if w.claims.rung && sleep(ctx, w.wakeDelay()) {
			next = time.Now()
		}
	}
}

// sooner is the shorter of two waits, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

func orForever(d time.Duration) time.Duration {
	if d <= 0 {
		return time.Hour
	}
	return d
}

// wait waits until there may be something to do, and tells whether a bell rang.
// It listens only where there is room for jobs: bells that nobody heard go on
// ringing.
func (w *worker) wait(ctx context.Context, bell *bell, d time.Duration, listen bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	rung := bell.rung
	if !listen {
		rung = nil
	}
	select {
	case <-ctx.Done():
	case <-w.room:
	case <-rung:
		return true
	case <-timer.C:
	}
	return false
}

// wakeDelay is how long this process waits when a bell rings. Few of many come
// early, so that the first has claimed before the next ones look.
func (w *worker) wakeDelay() time.Duration {
	switch w.claims.turn {
	case firstTurn:
		return rand.N(wakeFirst)
	case laterTurn:
		return wakeOthers + rising(wakeSpread-wakeOthers)
	}
	return rising(wakeSpread)
}

// rising is a random time up to a limit, the later the more likely.
func rising(limit time.Duration) time.Duration { return max(rand.N(limit), rand.N(limit)) }

// want is how many jobs to claim, and after how long to ask again, zero if only
// when something changes. It gives back what can't begin soon.
func (w *worker) want(now time.Time) (n int, wait time.Duration) {
	_, sinkPaused := w.relay.pauses.sink(w.cfg.Sink)
	tenantsPaused := w.relay.pauses.pausedTenants()
	w.mu.Lock()
	horizon := w.speed.horizon(w.cfg.Lease)
	shut := w.gate.until.Sub(now)
	ahead := w.speed.ahead(w.began, w.cfg.BatchJobs, w.cfg.Lease, now)
	var back []*held
	if len(w.hand.jobs) > 0 {
		all := sinkPaused || shut > horizon
		late := now.Add(-w.cfg.Lease / 10)
		back = w.hand.remove(func(j *held) bool {
			_, paused := tenantsPaused[j.tenant()]
			return all || paused || !j.since.After(late)
		})
	}
	switch {
	case sinkPaused:
	case shut > 0:
		wait = shut
	case w.gate.rounds > 0: // one call finds out whether the sink is back
		if w.gate.free() {
			n = min(w.gate.limit, w.cfg.BatchJobs) - len(w.hand.jobs)
		}
	default:
		allowed := w.limits.ahead(now, horizon, ahead)
		if n = allowed - len(w.hand.jobs); n <= 0 && allowed < ahead {
			wait = max(w.limits.next(now, horizon, len(w.hand.jobs)).Sub(now), time.Millisecond)
		}
		if 2*n < allowed && len(w.hand.jobs) > 0 {
			n = 0 // a larger claim is soon due
		}
	}
	for _, j := range w.hand.jobs { // they go back if no lane gets to them
		wait = sooner(wait, w.cfg.Lease/10-now.Sub(j.since))
	}
	w.mu.Unlock()
	w.giveBack(back, 0)
	return max(n, 0), wait
}
