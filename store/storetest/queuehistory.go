package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

func queueHistoryRules() []rule {
	return []rule{
		queueRule("RandomOperationsMatchTheModel", checkQueueModel, transactions, elapsing),
		queueRule("WorkersThatStallAndDieKeepTheRules", checkHistory, elapsing, inspecting),
	}
}

const (
	historyJobs         = 120
	historyWorkers      = 6
	historyAttempts     = 4
	historyRedeliveries = 3
)

// lent is one lease in the history of a job, and what its worker did.
type lent struct {
	*core.Claimed
	// kind is 0 when the worker died.
	kind      core.SettleKind
	uncounted bool
	// lost: the worker was told so.
	lost bool
}

// history is what workers did, by job, in the order in which they noted it.
type history struct {
	k *queueKit

	mu   sync.Mutex
	jobs map[string][]*lent
}

// checkHistory lets workers claim, settle, stall and die, while time passes and
// leases are taken back. Then it reads the history.
func checkHistory(k *queueKit) {
	k.Logf("seed %d", k.h.Seed)
	h := &history{k: k, jobs: map[string][]*lent{}}
	receipts := k.enqueue(numbered("j", historyJobs, func(j *core.Job) { j.MaxAttempts = historyAttempts })...)
	for _, r := range receipts {
		h.jobs[r.ID] = nil
	}
	over := make(chan struct{})
	var workers, keeper sync.WaitGroup
	for w := range historyWorkers {
		q := k.queue
		if w%2 == 1 {
			q = k.second
		}
		random := rand.New(rand.NewPCG(k.h.Seed, uint64(w)))
		workers.Go(func() { h.work(q, w, random) })
	}
	keeper.Go(func() { h.keep(over, rand.New(rand.NewPCG(k.h.Seed, 1000))) })
	workers.Wait()
	close(over)
	keeper.Wait()
	h.check(receipts)
}

// keep lets time pass and takes leases back.
func (h *history) keep(over chan struct{}, random *rand.Rand) {
	for {
		select {
		case <-over:
			return
		default:
		}
		if err := h.k.h.Elapse(h.k.ctx, h.k.store, time.Duration(random.Int64N(int64(lease)))); err != nil {
			h.k.Errorf("letting time pass: %v", err)
			return
		}
		if _, err := h.k.second.TakeBack(h.k.ctx, core.TakeBackRequest{MaxRedeliveries: historyRedeliveries}); err != nil {
			h.k.Errorf("taking back: %v", err)
			return
		}
	}
}

// work goes on until no job is open.
func (h *history) work(q Queue, w int, random *rand.Rand) {
	var stalled []*lent
	for !h.over() && h.k.ctx.Err() == nil && !h.k.Failed() {
		got, err := h.k.tryClaim(q, core.ClaimRequest{Max: 1 + random.IntN(6), Owner: fmt.Sprintf("worker-%d", w), Spread: random.IntN(3) * 5})
		if err != nil {
			h.k.Errorf("claiming: %v", err)
			return
		}
		var awake []*lent
		for _, l := range h.note(got) {
			switch n := random.IntN(10); {
			case n < 1: // the process dies
			case n < 2:
				stalled = append(stalled, l)
			default:
				awake = append(awake, l)
			}
		}
		if len(stalled) > 0 && random.IntN(3) == 0 {
			awake, stalled = append(awake, stalled...), nil
		}
		if !h.settle(q, awake, random) {
			return
		}
	}
}

func (h *history) note(claims []*core.Claimed) []*lent {
	h.mu.Lock()
	defer h.mu.Unlock()
	var noted []*lent
	for _, c := range claims {
		l := &lent{Claimed: c}
		h.jobs[c.ID] = append(h.jobs[c.ID], l)
		noted = append(noted, l)
	}
	return noted
}

// settle does something with each job, as a relay would.
func (h *history) settle(q Queue, jobs []*lent, random *rand.Rand) bool {
	settlements := make([]core.Settlement, len(jobs))
	for i, l := range jobs {
		s := core.Settlement{Job: l.Claimed, Receipt: fmt.Sprintf("%d by %#v", l.Lease.Attempt, l.Ref), Failure: refusal}
		switch n := random.IntN(10); {
		case n < 4:
			s.Kind = core.Complete
		case n < 7 && l.Lease.Attempt < l.MaxAttempts:
			s.Kind, s.Delay = core.Retry, time.Duration(random.Int64N(int64(time.Minute)))
		case n < 7:
			s.Kind = core.Fail
		case n < 8:
			s.Kind, s.Uncounted = core.Retry, true
		case n < 9:
			s.Kind = core.GiveBack
		default:
			s.Kind = core.EndUnknown
		}
		settlements[i] = s
	}
	lost, err := q.Settle(h.k.ctx, settlements)
	if err == nil && random.IntN(4) == 0 { // as if the answer had not come
		var again []*core.Claimed
		again, err = q.Settle(h.k.ctx, settlements)
		for _, c := range lost {
			if !slices.Contains(again, c) {
				h.k.Errorf("%s: told as lost, and then not", c.ID)
			}
		}
	}
	if err != nil {
		h.k.Errorf("settling: %v", err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, l := range jobs {
		l.kind, l.uncounted = settlements[i].Kind, settlements[i].Uncounted
		l.lost = slices.Contains(lost, l.Claimed)
	}
	return true
}

// over asks the store for what is still open: a crash ends a job without its
// worker.
func (h *history) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, leases := range h.jobs {
		ended := slices.ContainsFunc(leases, func(l *lent) bool { return l.ends() })
		if ended {
			continue
		}
		info, err := h.k.h.Job(h.k.ctx, h.k.store, id)
		if err != nil || !info.State.Final() {
			return err != nil && h.k.ctx.Err() != nil
		}
	}
	return true
}

// ends tells whether the worker ended the job.
func (l *lent) ends() bool {
	return !l.lost && (l.kind == core.Complete || l.kind == core.Fail || l.kind == core.EndUnknown)
}

// check reads the history: nothing is lost, and every lease follows from the
// one before.
func (h *history) check(receipts []core.Receipt) {
	h.k.Helper()
	tokens := map[string]bool{}
	leases := 0
	for _, r := range receipts {
		all := h.jobs[r.ID]
		// Both numbers only ever rise; two leases with the same ones were noted
		// in their order, since the first was settled before the second began.
		slices.SortStableFunc(all, func(a, b *lent) int { return a.turn() - b.turn() })
		for i, l := range all {
			leases++
			token := fmt.Sprintf("%s %#v", l.ID, l.Ref)
			if tokens[token] {
				h.k.Errorf("%s: two leases have the handle %s", r.ID, token)
			}
			tokens[token] = true
			if l.Lease.Attempt > historyAttempts || l.Redeliveries > historyRedeliveries {
				h.k.Errorf("%s: attempt %d, redelivery %d; the limits are %d and %d",
					r.ID, l.Lease.Attempt, l.Redeliveries, historyAttempts, historyRedeliveries)
			}
			if i == 0 {
				if l.Lease.Attempt != 1 || l.Redeliveries != 0 {
					h.k.Errorf("%s: the first lease has attempt %d, redelivery %d", r.ID, l.Lease.Attempt, l.Redeliveries)
				}
				continue
			}
			h.checkNext(all[i-1], l)
		}
		h.checkEnd(h.k.info(r.ID), all)
	}
	h.k.Logf("%d leases of %d jobs", leases, len(receipts))
}

func (l *lent) turn() int { return l.Lease.Attempt + l.Redeliveries }

// checkNext: a job is lent again after its holder gave it up, or after its
// lease ran out; never while somebody holds it, and never after its end.
func (h *history) checkNext(before, after *lent) {
	h.k.Helper()
	attempt, redeliveries := before.Lease.Attempt, before.Redeliveries
	switch {
	case before.ends():
		h.k.Errorf("%s was lent after %s", before.ID, kindNames[before.kind])
		return
	case before.kind == 0 || before.lost:
		redeliveries++
	case before.kind == core.Retry && !before.uncounted:
		attempt++
	}
	if after.Lease.Attempt != attempt || after.Redeliveries != redeliveries {
		h.k.Errorf("%s: attempt %d, redelivery %d after %s (lost: %t, uncounted: %t) of attempt %d, redelivery %d", before.ID,
			after.Lease.Attempt, after.Redeliveries, kindNames[before.kind], before.lost, before.uncounted, before.Lease.Attempt, before.Redeliveries)
	}
}

// checkEnd: the job ended as its last holder said, or as crashed.
func (h *history) checkEnd(info core.JobInfo, all []*lent) {
	h.k.Helper()
	if len(all) == 0 {
		h.k.Errorf("%s was never lent", info.ID)
		return
	}
	last := all[len(all)-1]
	switch {
	case last.ends():
		if info.State != settledStates[last.kind] {
			h.k.Errorf("%s is %s after %s", info.ID, info.State, kindNames[last.kind])
		}
		if last.kind == core.Complete && info.Result != fmt.Sprintf("%d by %#v", last.Lease.Attempt, last.Ref) {
			h.k.Errorf("%s has the result %q of another lease", info.ID, info.Result)
		}
	case last.kind != 0 && !last.lost:
		h.k.Errorf("%s is %s and was never lent after %s", info.ID, info.State, kindNames[last.kind])
	case info.State != core.JobFailed || info.Failure.Code != core.CodeCrashed || last.Redeliveries != historyRedeliveries:
		h.k.Errorf("%s is %s (%s) after its holder was lost in redelivery %d", info.ID, info.State, info.Failure.Code, last.Redeliveries)
	}
}
