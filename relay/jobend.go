package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// retry counts an attempt of a job, or fails it when there were enough. The lock
// is held.
func (t *term) retry(j *job, r *core.Result, reason error) core.Settlement {
	n := j.attempts + 1
	if n >= cmp.Or(j.claimed.MaxAttempts, core.DefaultMaxAttempts) {
		return t.fail(j, core.Failure{Code: core.CodeExhausted, Reason: reason.Error()})
	}
	how := core.Settlement{
		Kind: core.Retry, Delay: max(t.route.cfg.Backoff.nth(n), r.RetryAfter), Failure: core.Failure{Code: core.CodeRefused, Reason: reason.Error()},
	}
	if mayHaveArrived(r) {
		how.Failure.Code = core.CodeUnknown
	}
	j.reason = reason.Error()
	t.tellBlocked(j.key, &j.claimed.Lease.Event, reason, how.Delay)
	return how
}

// fail gives a job up. The lock is held.
func (t *term) fail(j *job, f core.Failure) core.Settlement {
	j.reason = f.Reason
	holds := t.holds(j.key, f)
	if holds {
		t.tellHeld(j.key, &j.claimed.Lease.Event, f)
	}
	return core.Settlement{Kind: core.Fail, Failure: f, Holds: holds}
}

// resend is for an unknown outcome: the job is sent again, unless its
// sink must not repeat.
func (t *term) resend(r *core.Result, delay time.Duration) core.Settlement {
	how := core.Settlement{
		Kind: core.Retry, Uncounted: true, Delay: delay,
		Failure: core.Failure{Code: core.CodeUnknown, Reason: reasonOf(r).Error()},
	}
	if t.route.caps.NoRepeat {
		how.Kind = core.EndUnknown
	}
	return how
}

// undecodable is what becomes of a job that its store can't show as an event. The
// lock is held.
func (t *term) undecodable(j *job) ending {
	r := core.ResultOf("", j.claimed.Err)
	var how core.Settlement
	if r.Outcome == core.Rejected {
		how = t.fail(j, core.Failure{Code: core.CodeUndecodable, Reason: r.Err.Error()})
	} else {
		how = t.retry(j, &r, r.Err)
	}
	how.Job = j.claimed
	return ending{j, how}
}

// unsent gives the jobs of a call back that was not made.
func (t *term) unsent(b *batch) (ends []ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight -= len(b.jobs)
	for _, j := range b.jobs {
		ends = append(ends, ending{j, core.Settlement{Job: j.claimed, Kind: core.GiveBack}})
	}
	return ends
}

// endJobs settles jobs. It returns false when the term is over.
func (t *term) endJobs(ends []ending) bool {
	if len(ends) == 0 {
		return t.alive.Err() == nil
	}
	settlements := make([]core.Settlement, len(ends))
	for i := range ends {
		settlements[i] = ends[i].how
	}
	var lost []*core.Claimed
	write := func(ctx context.Context) (err error) {
		lost, err = t.route.relay.cfg.Queue.Settle(ctx, settlements)
		return err
	}
	if !t.persist(opSettleJobs, write) {
		// The lease of the cursor is lost, those of the jobs are not: without this
		// last try the next holder would wait for their end.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.alive), lastWrite)
		defer cancel()
		_ = write(ctx)
		return false
	}
	crash.Here("relay.parked-settled")
	t.applyEnds(ends, lost)
	for _, e := range ends {
		if k := e.how.Kind; (k == core.Fail || k == core.EndUnknown) && !slices.Contains(lost, e.how.Job) {
			ev := &e.how.Job.Lease.Event
			t.route.failed(t.alive, FailedJob{
				ID: e.how.Job.ID, EventID: cmp.Or(ev.ID, e.job.open.EventID), Key: ev.AggregateID, Type: ev.Type, Tenant: ev.Tenant,
				Attempts: e.how.Job.Lease.Attempt, Failure: e.how.Failure,
			})
		}
	}
	return true
}

// lastWrite is how long a term that is over tries to settle its jobs.
const lastWrite = time.Second

// applyEnds notes what was settled.
func (t *term) applyEnds(ends []ending, lost []*core.Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	now := time.Now()
	for _, e := range ends {
		j := e.job
		j.mine, j.claimed = false, nil
		if slices.Contains(lost, e.how.Job) {
			j.change(true, j.open.State)
			t.look()
			continue
		}
		t.touch(j)
		switch e.how.Kind {
		case core.Retry, core.GiveBack:
			j.change(false, core.JobReady)
			j.due = now.Add(e.how.Delay)
			if e.how.Kind == core.Retry && !e.how.Uncounted {
				j.attempts++
			}
			continue
		case core.Complete:
			t.progressed()
		case core.Fail:
			j.attempts++
			if e.how.Holds {
				j.change(false, core.JobFailed)
				continue
			}
		}
		t.remove(j.key.line, j)
	}
}

// freeLines lets the lines of a call go on, which began in a round and is over.
func (t *term) freeLines(runs []run, round uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	t.jobCalls--
	t.gate.end(round)
	if t.over {
		return
	}
	for _, r := range runs {
		l := r.key.line
		l.busy = false
		t.arrange(l)
	}
	t.setAlarm(time.Now())
	t.room.Signal()
	t.work.Signal()
}

// keep extends the leases of jobs until stop is called. The context is that of
// their delivery: it ends when one of them is lost, or when they ran out.
func (t *term) keep(claimed []*core.Claimed, sent time.Time) (ctx context.Context, stop func()) {
	lease := t.route.relay.cfg.CursorLease
	ctx, cancel := context.WithCancel(t.delivering)
	ranOut := time.AfterFunc(time.Until(sent.Add(lease)), cancel)
	keeping, end := context.WithCancel(t.alive)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait := lease / 3
		for sleep(keeping, wait) {
			wait = lease / 3
			began := time.Now()
			var lost []*core.Claimed
			limited, done := context.WithTimeout(keeping, lease/3)
			lost, err := t.route.relay.cfg.Queue.Extend(limited, claimed, lease)
			done()
			switch {
			case keeping.Err() != nil:
			case err != nil:
				t.route.store.failed(opExtendJobs, err)
				wait = lease / 10
			default:
				t.route.store.ok(opExtendJobs)
				if len(lost) > 0 {
					cancel()
					claimed = slices.DeleteFunc(slices.Clone(claimed), func(c *core.Claimed) bool { return slices.Contains(lost, c) })
				} else if ranOut.Stop() {
					ranOut.Reset(time.Until(began.Add(lease)))
				}
			}
		}
	}()
	return ctx, func() {
		end()
		<-ended
		ranOut.Stop()
		cancel()
	}
}
