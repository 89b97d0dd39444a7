package relay

import (
	"context"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// lane makes one call to the sink after the other.
func (w *worker) lane(n int) {
	for {
		jobs, round := w.take(n)
		if jobs == nil {
			return
		}
		w.call(n, jobs, round)
	}
}

// take waits for jobs that may be delivered now, and returns nil when the worker
// drains. Their call begins in the gate's round.
func (w *worker) take(lane int) (jobs []*held, round uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if w.draining {
			return nil, 0
		}
		now := time.Now()
		if jobs = w.pick(now); len(jobs) > 0 {
			w.calls++
			w.inFlight += len(jobs)
			w.began[lane] = now
			w.signalRoom()
			if len(w.hand.jobs) > 0 {
				w.work.Signal() // another lane may have work, too
			}
			return jobs, w.gate.begin()
		}
		w.work.Wait()
	}
}

// pick takes the jobs of the next call out of the hand. Where none may begin
// yet it sees that a lane is woken when one may. The lock is held.
func (w *worker) pick(now time.Time) []*held {
	if len(w.hand.jobs) == 0 {
		return nil
	}
	if !w.gate.open(now) {
		if w.gate.until.After(now) { // else the end of the one call wakes
			w.wakeAt(w.gate.until)
		}
		return nil
	}
	most, at := w.limits.most(now, w.gate.limit)
	if most == 0 {
		w.wakeAt(at)
		return nil
	}
	keys := map[string]bool{}
	alone := false
	var next time.Time // when a tenant's rate lets one begin
	jobs := w.hand.take(most, func(j *held) bool {
		if alone || len(keys) > 0 && w.isAlone(j) {
			return false
		}
		key := j.job.Lease.Event.AggregateID
		if key == "" {
			key = "\x00" + j.job.ID // a key of its own
		}
		if keys[key] && !w.caps.PrefixPerKey {
			return false
		}
		if ok, at := w.limits.begin(now, j.tenant()); !ok {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			return false
		}
		alone = w.isAlone(j)
		keys[key] = true
		return true
	})
	w.limits.began(now, len(jobs))
	if !next.IsZero() {
		w.wakeAt(next)
	}
	return jobs
}

// call delivers jobs and hands over what became of them.
func (w *worker) call(lane int, jobs []*held, round uint64) {
	ctx, cancel := context.WithTimeout(w.delivering, w.cfg.Timeout)
	defer cancel()
	mine, gone := w.relay.leases.begin(jobs, cancel)
	began := time.Now()
	var results []core.Result
	if len(mine) > 0 {
		results = w.deliver(ctx, mine)
		crash.Here("relay.job-delivered")
		w.relay.leases.end(mine)
	}
	took := time.Since(began)

	w.mu.Lock()
	w.calls--
	w.gate.end(round)
	w.inFlight -= len(jobs)
	w.began[lane] = time.Time{}
	if len(mine) > 0 {
		w.speed.saw(took, len(mine))
	}
	tried := w.gate.rounds > 0
	out := w.judge(mine, results, round, time.Now())
	for _, j := range gone {
		out.settle(j, core.Settlement{Kind: core.GiveBack})
	}
	hurry := len(w.hand.jobs) == 0 && w.calls == 0
	w.signalRoom()
	switch {
	case w.gate.until.After(time.Now()):
		w.wakeAt(w.gate.until)
	case tried: // the others waited for this call
		w.work.Broadcast()
	}
	w.mu.Unlock()

	if out.pause > 0 {
		w.pauseSink(out.pause, out.reason)
	}
	if len(out.spare) > 0 {
		w.pauseParts(out.spare)
	}
	w.relay.settler.add(out.settled, hurry)
}

// deliver calls the sink.
func (w *worker) deliver(ctx context.Context, jobs []*held) []core.Result {
	deadline, _ := ctx.Deadline()
	leases := make([]core.Lease, len(jobs))
	for i, j := range jobs {
		leases[i] = j.job.Lease
		leases[i].Deadline = deadline
	}
	ctx, span := w.tracer.start(ctx, leases)
	began := time.Now()
	results, err := call(ctx, w.sink, leases, w.caps)
	if err != nil {
		w.log.Error("the sink broke its contract: its jobs are tried again, or end as unknown where it must not repeat",
			"error", err, "jobs", len(jobs), "stack", stackOf(err))
	}
	if err != nil {
		w.suspectAll(jobs)
	}
	n := tallyOf(results)
	w.metrics.called(time.Since(began), n)
	w.tracer.end(span, n, results)
	return results
}
