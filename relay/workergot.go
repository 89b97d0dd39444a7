package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	// suspectFrom is from how many redeliveries on a job may be what ends
	// processes: of such jobs a worker has one at a time.
	suspectFrom = 2
	// suspectDelay is after how long the next one comes.
	suspectDelay = time.Second
)

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
