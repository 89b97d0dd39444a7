package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	// sinkName is the sink of jobs in rules that need one.
	sinkName = "mail"
	// lease is what the rules claim with. Only Elapse lets it run out.
	lease = 10 * time.Minute
	// lapse is how long after a claim a lease is taken back.
	lapse = lease + core.TakeBackGrace + time.Second
)

// queueKit is what one subtest of a queue works with.
type queueKit struct {
	*kit
	// queue and second are two handles on the same data.
	queue, second Queue
	admin         core.Admin
	probes        int
}

func newQueueKit(k *kit) *queueKit {
	q := &queueKit{kit: k, queue: k.h.Queue(k.store), second: k.h.Queue(k.other)}
	if k.h.Admin != nil {
		q.admin = k.h.Admin(k.store)
	}
	return q
}

// job returns a small valid job whose event has this id.
func job(id string) core.Job {
	return core.Job{
		Event: core.Event{ID: id, Type: "mail.requested", Payload: []byte(`{"id":"` + id + `"}`)},
		Sink:  sinkName,
	}
}

// numbered returns jobs whose events are prefix-0 and so on.
func numbered(prefix string, n int, change func(*core.Job)) []core.Job {
	jobs := make([]core.Job, n)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("%s-%d", prefix, i))
		if change != nil {
			change(&jobs[i])
		}
	}
	return jobs
}

// enqueue commits the jobs in one transaction.
func (k *queueKit) enqueue(jobs ...core.Job) []core.Receipt {
	k.Helper()
	return k.enqueueBy(k.store, jobs...)
}

func (k *queueKit) enqueueBy(s Store, jobs ...core.Job) []core.Receipt {
	k.Helper()
	receipts, err := k.tryEnqueue(s, jobs...)
	if err != nil {
		k.Fatalf("enqueuing %d jobs: %v", len(jobs), err)
	}
	return receipts
}

func (k *queueKit) tryEnqueue(s Store, jobs ...core.Job) ([]core.Receipt, error) {
	var receipts []core.Receipt
	err := s.InTransaction(k.ctx, func(ctx context.Context) error {
		var err error
		receipts, err = k.h.Queue(s).Enqueue(ctx, jobs...)
		return err
	})
	if err == nil && len(receipts) != len(jobs) {
		k.Errorf("%d receipts for %d jobs", len(receipts), len(jobs))
	}
	return receipts, err
}

// enqueueOne commits a job with this event id in a transaction of its own.
func (k *queueKit) enqueueOne(id string) core.Receipt {
	k.Helper()
	return k.enqueue(job(id))[0]
}

// claim fails unless exactly the jobs of these events are due, in this order.
func (k *queueKit) claim(events ...string) []*core.Claimed {
	k.Helper()
	got := k.claimBy(k.queue, core.ClaimRequest{})
	if !slices.Equal(eventsOfClaims(got), events) {
		k.Fatalf("claimed %v, want %v", eventsOfClaims(got), events)
	}
	return got
}

// claimOne fails unless exactly this job is due.
func (k *queueKit) claimOne(event string) *core.Claimed {
	k.Helper()
	return k.claim(event)[0]
}

// claimBy fills in what the request leaves out.
func (k *queueKit) claimBy(q Queue, req core.ClaimRequest) []*core.Claimed {
	k.Helper()
	got, err := k.tryClaim(q, req)
	if err != nil {
		k.Fatalf("claiming: %v", err)
	}
	return got
}

func (k *queueKit) tryClaim(q Queue, req core.ClaimRequest) ([]*core.Claimed, error) {
	if req.Sink == "" {
		req.Sink = sinkName
	}
	if req.Max == 0 {
		req.Max = 1000
	}
	if req.Lease == 0 {
		req.Lease = lease
	}
	if req.Owner == "" {
		req.Owner = "worker"
	}
	return q.Claim(k.ctx, req)
}

// settle does the same with all jobs, none of which may be lost.
func (k *queueKit) settle(s core.Settlement, jobs ...*core.Claimed) {
	k.Helper()
	if lost := k.trySettle(s, jobs...); len(lost) > 0 {
		k.Fatalf("settling: %v are lost", eventsOfClaims(lost))
	}
}

// trySettle returns the lost ones.
func (k *queueKit) trySettle(s core.Settlement, jobs ...*core.Claimed) []*core.Claimed {
	k.Helper()
	all := make([]core.Settlement, len(jobs))
	for i, j := range jobs {
		all[i] = s
		all[i].Job = j
	}
	lost, err := k.queue.Settle(k.ctx, all)
	if err != nil {
		k.Fatalf("settling %v: %v", eventsOfClaims(jobs), err)
	}
	return lost
}

// extend returns the lost ones.
func (k *queueKit) extend(q Queue, jobs ...*core.Claimed) []*core.Claimed {
	k.Helper()
	lost, err := q.Extend(k.ctx, jobs, lease)
	if err != nil {
		k.Fatalf("extending %v: %v", eventsOfClaims(jobs), err)
	}
	return lost
}

// takeBack fails unless the result is as wanted.
func (k *queueKit) takeBack(req core.TakeBackRequest, want core.TakeBackResult) {
	k.Helper()
	k.takeBackBy(k.queue, req, want)
}

func (k *queueKit) takeBackBy(q Queue, req core.TakeBackRequest, want core.TakeBackResult) {
	k.Helper()
	told := map[core.JobState]int{}
	req.Ended = func(id string, as core.JobState) {
		if id == "" {
			k.Errorf("a job ended as %s and its id isn't told", as)
		}
		told[as]++
	}
	got, err := q.TakeBack(k.ctx, req)
	if err != nil {
		k.Fatalf("taking back: %v", err)
	}
	if got != want {
		k.Fatalf("took back %+v, want %+v", got, want)
	}
	if told[core.JobFailed] != got.Crashed || told[core.JobUnknown] != got.Unknown {
		k.Errorf("took back %+v, and Ended was told %v", got, told)
	}
}

// lapse lets the leases of n jobs run out, and takes the jobs back.
func (k *queueKit) lapse(n int) {
	k.Helper()
	k.elapse(lapse)
	k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: n})
}

func (k *queueKit) elapse(d time.Duration) {
	k.Helper()
	if err := k.h.Elapse(k.ctx, k.store, d); err != nil {
		k.Fatalf("letting time pass: %v", err)
	}
}

// info returns a job that must exist.
func (k *queueKit) info(id string) core.JobInfo {
	k.Helper()
	info, err := k.h.Job(k.ctx, k.other, id)
	if err != nil {
		k.Fatalf("reading a job: %v", err)
	}
	return info
}

func (k *queueKit) wantState(id string, want core.JobState) core.JobInfo {
	k.Helper()
	info := k.info(id)
	if info.State != want {
		k.Errorf("%s is %s, want %s", info.EventID, info.State, want)
	}
	return info
}

// wantLost fails unless exactly these were told as lost.
func (k *queueKit) wantLost(lost []*core.Claimed, want ...*core.Claimed) {
	k.Helper()
	got, wanted := sorted(eventsOfClaims(lost)), sorted(eventsOfClaims(want))
	if !slices.Equal(got, wanted) {
		k.Errorf("%v are told as lost, want %v", got, wanted)
	}
}

// now is the store's time.
func (k *queueKit) now() time.Time {
	k.Helper()
	k.probes++
	probe := job(fmt.Sprintf("probe-%d", k.probes))
	probe.Sink = probe.ID
	k.enqueue(probe)
	got := k.claimBy(k.queue, core.ClaimRequest{Sink: probe.Sink})
	if len(got) != 1 {
		k.Fatalf("claimed %d jobs of the sink %s, want 1", len(got), probe.Sink)
	}
	k.settle(core.Settlement{Kind: core.Complete}, got...)
	return got[0].ClaimedAt
}

func eventsOfClaims(jobs []*core.Claimed) []string {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.Lease.Event.ID
	}
	return ids
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return ids
}

func idsOfReceipts(receipts []core.Receipt) []string {
	ids := make([]string, len(receipts))
	for i, r := range receipts {
		ids[i] = r.ID
	}
	return ids
}

var refusal = core.Failure{Code: core.CodeRejected, Reason: "refused by the test"}
