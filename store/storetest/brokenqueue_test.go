package storetest_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
	"github.com/gooutbox/outbox/store/storetest"
)

// TestSuiteFindsBrokenQueues is TestSuiteFindsBrokenStores for queues.
func TestSuiteFindsBrokenQueues(t *testing.T) {
	runBroken(t, slices.Sorted(maps.Keys(queueFaults)), 4, func(t *testing.T, fault string) {
		h := queueHarness(func() *clocked { return newBrokenQueue(queueFaults[fault]) })
		h.Timeout = 10 * time.Second
		h.Races = 100
		h.Seed = 1
		storetest.RunQueue(t, h)
	}, func(fault string) (must, may []string) {
		for group, rules := range queueFindings[fault] {
			for rule := range strings.FieldsSeq(rules) {
				must = append(must, group+"/"+rule)
			}
		}
		return must, concurrentQueueRules
	})
}

// concurrentQueueRules may find a fault: chance decides.
var concurrentQueueRules = []string{
	"Dedup/ConcurrentWritersOfOneKeyGetOneJob", "Claim/CompetingWorkersShareTheJobs",
	"TakeBack/SettledJobIsNeverOverwritten", "QueueHistory/RandomOperationsMatchTheModel",
	"QueueHistory/WorkersThatStallAndDieKeepTheRules",
}

// brokenQueue is a memory queue some of whose methods are replaced.
type brokenQueue struct {
	*memory.Store
	ahead *clocked // whose clock it is

	onEnqueue  func(ctx context.Context, jobs []core.Job) ([]core.Receipt, error)
	onClaim    func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error)
	onExtend   func(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error)
	onSettle   func(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error)
	onTakeBack func(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error)
	onTenants  func(names []string) []string
	onNextDue  func(d time.Duration, there bool) (time.Duration, bool)
	onPause    func(ctx context.Context, p core.Pause) error
	onPauses   func(pauses []core.Pause) []core.Pause
	onWatch    func(ctx context.Context, wake func(core.Wake)) error
	onClean    func(ctx context.Context) (int64, error)
	onRetry    func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error)
	onDiscard  func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error)

	mu sync.Mutex
	// leases are the newest of each job.
	leases map[string]*core.Claimed
}

func newBrokenQueue(build func(*brokenQueue)) *clocked {
	c := newClocked()
	q := &brokenQueue{Store: c.Store, ahead: c, leases: map[string]*core.Claimed{}}
	build(q)
	c.queue, c.admin = q, q
	return c
}

func (q *brokenQueue) Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error) {
	if q.onEnqueue != nil {
		return q.onEnqueue(ctx, jobs)
	}
	return q.Store.Enqueue(ctx, jobs...)
}

func (q *brokenQueue) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	claim := q.onClaim
	if claim == nil {
		claim = q.Store.Claim
	}
	got, err := claim(ctx, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range got {
		q.leases[c.ID] = c
	}
	return got, err
}

// newest is the lease that a job has now, whoever asks.
func (q *brokenQueue) newest(c *core.Claimed) *core.Claimed {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.leases[c.ID]; l != nil {
		return l
	}
	return c
}

func (q *brokenQueue) Extend(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error) {
	if q.onExtend != nil {
		return q.onExtend(ctx, jobs, lease)
	}
	return q.Store.Extend(ctx, jobs, lease)
}

func (q *brokenQueue) Settle(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
	if q.onSettle != nil {
		return q.onSettle(ctx, settlements)
	}
	return q.Store.Settle(ctx, settlements)
}

func (q *brokenQueue) TakeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	if q.onTakeBack != nil {
		return q.onTakeBack(ctx, req)
	}
	return q.Store.TakeBack(ctx, req)
}

func (q *brokenQueue) Tenants(ctx context.Context, sink, after string, limit int) ([]string, error) {
	names, err := q.Store.Tenants(ctx, sink, after, limit)
	if q.onTenants != nil {
		names = q.onTenants(names)
	}
	return names, err
}

func (q *brokenQueue) NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error) {
	d, there, err := q.Store.NextDue(ctx, sink, tenants)
	if q.onNextDue != nil {
		d, there = q.onNextDue(d, there)
	}
	return d, there, err
}

func (q *brokenQueue) Pause(ctx context.Context, p core.Pause) error {
	if q.onPause != nil {
		return q.onPause(ctx, p)
	}
	return q.Store.Pause(ctx, p)
}

func (q *brokenQueue) Pauses(ctx context.Context) ([]core.Pause, error) {
	pauses, err := q.Store.Pauses(ctx)
	if q.onPauses != nil {
		pauses = q.onPauses(pauses)
	}
	return pauses, err
}

func (q *brokenQueue) Watch(ctx context.Context, wake func(core.Wake)) error {
	if q.onWatch != nil {
		return q.onWatch(ctx, wake)
	}
	return q.Store.Watch(ctx, wake)
}

func (q *brokenQueue) CleanJobs(ctx context.Context) (int64, error) {
	if q.onClean != nil {
		return q.onClean(ctx)
	}
	return q.Store.CleanJobs(ctx)
}

func (q *brokenQueue) Retry(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
	if q.onRetry != nil {
		return q.onRetry(ctx, f, act)
	}
	return q.Store.Retry(ctx, f, act)
}

func (q *brokenQueue) Discard(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
	if q.onDiscard != nil {
		return q.onDiscard(ctx, f, act)
	}
	return q.Store.Discard(ctx, f, act)
}

// withClock does something while the store's clock is put forward.
func (q *brokenQueue) withClock(d time.Duration, do func()) {
	q.ahead.ahead.Add(int64(d))
	defer q.ahead.ahead.Add(-int64(d))
	do()
}

// settling changes each settlement before it is written.
func (q *brokenQueue) settling(change func(*core.Settlement)) {
	q.onSettle = func(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
		settlements = slices.Clone(settlements)
		for i := range settlements {
			change(&settlements[i])
		}
		return q.Store.Settle(ctx, settlements)
	}
}

// claiming changes each lease that is given.
func (q *brokenQueue) claiming(change func(*core.Claimed)) {
	q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
		got, err := q.Store.Claim(ctx, req)
		for _, c := range got {
			change(c)
		}
		return got, err
	}
}

// requesting changes what is asked of a claim.
func (q *brokenQueue) requesting(change func(*core.ClaimRequest)) {
	q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
		change(&req)
		return q.Store.Claim(ctx, req)
	}
}

// enqueuing changes each job that is enqueued.
func (q *brokenQueue) enqueuing(change func(*core.Job)) {
	q.onEnqueue = func(ctx context.Context, jobs []core.Job) ([]core.Receipt, error) {
		jobs = slices.Clone(jobs)
		for i := range jobs {
			change(&jobs[i])
		}
		return q.Store.Enqueue(ctx, jobs...)
	}
}

// takingBack changes what is asked of TakeBack.
func (q *brokenQueue) takingBack(change func(*core.TakeBackRequest)) {
	q.onTakeBack = func(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
		change(&req)
		return q.Store.TakeBack(ctx, req)
	}
}
