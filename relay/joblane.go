package relay

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// jobSize is what a job is taken to hold before some have been seen, in bytes:
// a claim doesn't know.
const jobSize = 64 << 10

// jobsNext tells whether the next call is one of parked jobs: when one is due and
// no lane is at it, or nothing else is to be done, and in turn with the others
// where there is one lane. The lock is held.
func (t *term) jobsNext() bool {
	if len(t.lines.due) == 0 || t.lines.due[0].due.After(time.Now()) {
		return false
	}
	return t.keys.ready.empty() || t.jobCalls == 0 && !t.jobsLast
}

// pickJobs fills b with the due jobs to claim, of as many keys as a call may
// have. The lock is held.
func (t *term) pickJobs(b *batch, now time.Time) {
	most := min(t.gate.limit, max(t.route.cfg.BatchBytes/t.jobSize, 1))
	h := &t.lines.due
	for len(*h) > 0 && len(b.jobs) < most && !(*h)[0].due.After(now) {
		l := (*h)[0]
		if len(b.jobs) > 0 && l.jobs[0].alone {
			break
		}
		heap.Pop(h)
		t.takeJobs(b, l, most, now)
		if l.jobs[0].alone {
			break
		}
	}
	t.jobCalls++
}

// takeJobs adds a run of a line's jobs to b: one, or as many as the sink may have
// in one call. The lock is held.
func (t *term) takeJobs(b *batch, l *line, most int, now time.Time) {
	r := run{key: l.key, first: len(b.jobs)}
	n := 1
	if t.route.caps.PrefixPerKey {
		n = most - len(b.jobs)
	}
	head := l.jobs[0]
	for _, j := range l.jobs[:min(n, len(l.jobs))] {
		if r.count > 0 && (head.alone || j.alone || !j.ready() || j.due.After(now)) ||
			len(l.pending) > 0 && j.open.Position.Compare(l.pending[0]) > 0 {
			break
		}
		j.mine = true
		b.jobs = append(b.jobs, j)
		r.count++
	}
	l.busy = true
	b.runs = append(b.runs, r)
}

// deliverJobs claims what was picked, calls the sink with it, and settles it. It
// returns false when the term is over.
func (t *term) deliverJobs(b *batch) bool {
	defer t.freeLines(slices.Clone(b.runs), b.round)
	sent := time.Now()
	claimed, err := t.claim(b.jobs)
	if err != nil {
		t.unclaimed(b.jobs, err)
		return t.alive.Err() == nil
	}
	t.route.store.ok(opClaimJobs)
	crash.Here("relay.parked-claimed")
	ctx, stop := t.keep(claimed, sent)
	defer stop()
	ends := t.lend(b, claimed)
	if len(b.jobs) == 0 {
		return t.endJobs(ends)
	}
	if ctx.Err() == nil {
		if results, ok := t.deliver(ctx, b); ok {
			crash.Here("relay.parked-delivered")
			return t.endJobs(append(ends, t.judgeJobs(b, results)...))
		}
	}
	return t.endJobs(append(ends, t.unsent(b)...))
}

// claim asks the store for jobs.
func (t *term) claim(jobs []*job) (claimed []*core.Claimed, err error) {
	open := make([]core.OpenJob, len(jobs))
	for i, j := range jobs {
		open[i] = j.open
	}
	err = t.limited(func(ctx context.Context) error {
		claimed, err = t.cursor.ClaimJobs(ctx, open, t.route.relay.cfg.CursorLease)
		return err
	})
	return claimed, err
}

// unclaimed forgets jobs of which it isn't known whether they were claimed.
func (t *term) unclaimed(jobs []*job, err error) {
	if errors.Is(err, core.ErrFenced) {
		t.end(err)
	} else if t.alive.Err() == nil {
		t.route.store.failed(opClaimJobs, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range jobs {
		j.mine = false
		j.change(true, j.open.State)
	}
	t.look()
}

// ending is what becomes of a claimed job.
type ending struct {
	job *job
	how core.Settlement
}

// lend makes a call of what was claimed, and returns what else is to be done with
// it: a key's jobs behind one that was not to be had are given back, so is all
// when the term drains, and what can't be decoded is failed as its line's head.
func (t *term) lend(b *batch, claimed []*core.Claimed) (ends []ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	jobs, runs := b.jobs, b.runs
	b.jobs, b.runs = make([]*job, 0, len(claimed)), make([]run, 0, len(runs))
	bytes := 0
	for _, asked := range runs {
		r := run{key: asked.key, first: len(b.jobs)}
		whole := !t.draining
		for _, j := range jobs[asked.first : asked.first+asked.count] {
			if len(claimed) == 0 || claimed[0].ID != j.open.ID {
				j.mine, whole = false, false
				j.change(true, j.open.State)
				t.look()
				continue
			}
			c := claimed[0]
			claimed = claimed[1:]
			j.claimed, j.attempts, j.kind = c, c.Lease.Attempt-1, c.Lease.Event.Type
			bytes += c.Lease.Event.Size()
			switch {
			case !whole || c.Err != nil && r.count > 0:
				whole = false
				ends = append(ends, ending{j, core.Settlement{Job: c, Kind: core.GiveBack}})
			case c.Err != nil:
				whole = false
				ends = append(ends, t.undecodable(j))
			default:
				lease := c.Lease
				lease.Redelivered = lease.Redelivered || j.redelivered
				b.leases, b.jobs = append(b.leases, lease), append(b.jobs, j)
				r.count++
			}
		}
		if r.count > 0 {
			b.runs = append(b.runs, r)
		}
	}
	if n := len(ends) + len(b.jobs); n > 0 {
		t.jobSize = max(bytes/n, 1)
	}
	t.inFlight += len(b.jobs)
	return ends
}

// judgeJobs says what becomes of the jobs of a call.
func (t *term) judgeJobs(b *batch, results []core.Result) []ending {
	n := answersOf(results)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight -= len(b.jobs)
	now := time.Now()
	t.passGate(now, n, b.round)
	ends := make([]ending, 0, len(b.jobs))
	for _, r := range b.runs {
		failed := false
		for i := r.first; i < r.first+r.count; i++ {
			j, result := b.jobs[i], &results[i]
			if mayHaveArrived(result) {
				j.unknown()
			}
			how := core.Settlement{Kind: core.GiveBack}
			switch {
			case result.Outcome == core.Delivered:
				how = core.Settlement{Kind: core.Complete, Receipt: result.Receipt}
			case !failed:
				failed = true
				how = t.judgeJob(j, result, len(b.jobs), n, now)
			case result.Outcome == core.Unknown:
				how = t.resend(result, 0)
			}
			how.Job = j.claimed
			ends = append(ends, ending{j, how})
		}
	}
	t.setAlarm(now)
	return ends
}

// judgeJob says what becomes of the first job of its key that was not delivered.
// The lock is held.
func (t *term) judgeJob(j *job, r *core.Result, calledWith int, n tally, now time.Time) core.Settlement {
	reason := reasonOf(r)
	switch finding := t.judge(&j.tries, r, calledWith, n, now); finding {
	case failedForGood:
		if r.Outcome == core.Unknown {
			return t.resend(r, 0)
		}
		return t.fail(j, failureOf(r, reason))
	case refusedForNow:
		return t.retry(j, r, reason)
	case spared:
		how := core.Settlement{
			Kind: core.Retry, Uncounted: true, Delay: cmp.Or(r.RetryAfter, t.route.cfg.OutageBackoff.Initial),
			Failure: core.Failure{Code: core.CodeUnavailable, Reason: reason.Error()},
		}
		j.reason = reason.Error()
		t.tellBlocked(j.key, &j.claimed.Lease.Event, reason, how.Delay)
		return how
	case blameless, blamelessAll:
		j.postponed++
		delay := t.route.cfg.Backoff.nth(j.postponed)
		if finding == blamelessAll {
			delay = min(delay, t.route.cfg.OutageBackoff.Max)
		}
		j.reason = reason.Error()
		t.tellBlocked(j.key, &j.claimed.Lease.Event, reason, delay)
		if r.Outcome == core.Unknown {
			return t.resend(r, delay)
		}
		return core.Settlement{Kind: core.GiveBack, Delay: delay}
	}
	return core.Settlement{Kind: core.GiveBack}
}
