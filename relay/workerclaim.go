package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

const (
	opClaim = "claiming jobs"
	// claimTimeout bounds a claim and the questions before it.
	claimTimeout = 10 * time.Second
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
	// soonAgain is from how many jobs on a claim that got fewer than it asked for
	// is followed by another look at once.
	soonAgain = 10
	// mostSpread is over how many jobs claims are spread where others claim at the
	// same time.
	mostSpread = 4 * maxAhead
	// lowerEvery is how many claims in a row may leave out the lower classes.
	lowerEvery = 10
	// suspectFrom is from how many redeliveries on a job may be what ends
	// processes: of such jobs a worker has one at a time.
	suspectFrom = 2
	// suspectDelay is after how long the next one comes.
	suspectDelay = time.Second
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
		if w.calls == 0 {
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

// got takes over what a claim lent.
func (w *worker) got(jobs []*core.Claimed, req core.ClaimRequest, took time.Duration) {
	now := time.Now()
	all := make([]*held, 0, len(jobs))
	for _, job := range jobs {
		all = append(all, &held{job: job, worker: w, since: now, rank: job.Priority.Rank()})
	}
	if req.FromRank == 0 && len(jobs) > 0 {
		w.claims.lowest = jobs[len(jobs)-1].Priority.Rank()
	}
	if len(all) > 0 {
		w.relay.leases.keep(w.cfg.Lease, all)
	}
	var v verdict
	w.mu.Lock()
	w.speed.claimed(took)
	suspects := w.suspects
	// Of several all go back, the first without delay: what is given back is
	// written later than the one that stays is begun, and if that ends this process
	// the others would have come back together with it.
	back := suspects > 0 || several(jobs)
	for _, j := range all {
		switch {
		case w.draining:
			v.settle(j, core.Settlement{Kind: core.GiveBack})
		case j.job.Err != nil:
			v.settle(j, w.unfit(j))
		case j.job.Redeliveries >= suspectFrom && back:
			v.settle(j, core.Settlement{Kind: core.GiveBack, Delay: time.Duration(suspects) * suspectDelay})
			suspects++
		default:
			if j.job.Redeliveries >= suspectFrom {
				suspects++
				w.suspects++
				j.suspect = true
			}
			if req.FromRank > 0 {
				j.rank = 0 // its turn has come
			}
			w.hand.add(j)
		}
	}
	w.work.Broadcast()
	w.mu.Unlock()
	w.relay.settler.add(v.settled, false)
}

// several tells whether more than one of the jobs may be what ends processes.
func several(jobs []*core.Claimed) bool {
	n := 0
	for _, j := range jobs {
		if j.Err == nil && j.Redeliveries >= suspectFrom {
			n++
		}
	}
	return n > 1
}

// unfit is for a job that can't be delivered as it is stored. The lock is held.
func (w *worker) unfit(j *held) core.Settlement {
	r := core.ResultOf("", j.job.Err)
	if r.Outcome == core.Rejected {
		return core.Settlement{Kind: core.Fail, Failure: failure(core.CodeUndecodable, r.Err)}
	}
	note := w.noteOf(j)
	note.unanswered++
	return core.Settlement{
		Kind: core.Retry, Uncounted: true, Failure: failure(core.CodeUndecodable, r.Err), Delay: w.backoffOf(j).nth(note.unanswered),
	}
}
