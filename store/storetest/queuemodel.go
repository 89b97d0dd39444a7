package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

// Times of the random test. No sum of elapsed times comes near a lease, a delay
// or a retention, so that the two clocks need not agree exactly.
const (
	modelLease = time.Minute
	modelStep  = 90 * time.Second
)

// handle is one lease, of the store and of the model.
type handle struct{ real, model *core.Claimed }

// queueSimulation does the same operations on the store and on the model.
type queueSimulation struct {
	k      *queueKit
	random *rand.Rand
	model  *memory.Store
	ahead  *atomic.Int64
	// handles are all leases ever given, oldest first.
	handles []handle
	// ids maps the ids of jobs to those in the model, events to the store's.
	ids, events map[string]string
	step        int
}

// checkQueueModel does random operations on the store and on package memory,
// and compares what both answer. Of the jobs that are due a store may lend any,
// as long as no job of a lower class goes before one of a higher.
func checkQueueModel(k *queueKit) {
	k.Logf("seed %d", k.h.Seed)
	ahead := &atomic.Int64{}
	s := &queueSimulation{
		k: k, random: rand.New(rand.NewPCG(k.h.Seed, 1)), ahead: ahead,
		model: memory.New(memory.Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}),
		ids:   map[string]string{}, events: map[string]string{},
	}
	operations := []struct {
		weight int
		do     func()
	}{
		{25, s.enqueue},
		{25, s.claim},
		{25, s.settle},
		{5, s.extend},
		{12, s.elapse},
		{10, s.takeBack},
		{4, s.retry},
		{2, s.discard},
		{2, s.clean},
		{4, s.look},
	}
	total := 0
	for _, op := range operations {
		total += op.weight
	}
	for s.step = range k.h.Operations {
		n := s.random.IntN(total)
		for _, op := range operations {
			if n -= op.weight; n < 0 {
				op.do()
				break
			}
		}
		if k.Failed() {
			k.Fatalf("after step %d of seed %d", s.step, k.h.Seed)
		}
	}
	s.compareAll()
	if k.Failed() {
		k.Fatalf("at the end of seed %d", k.h.Seed)
	}
}

func (s *queueSimulation) enqueue() {
	now := time.Now().Add(time.Duration(s.ahead.Load()))
	jobs := make([]core.Job, 1+s.random.IntN(3))
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("e%d-%d", s.step, i))
		jobs[i].Priority = core.Priority(s.random.IntN(3) - 1)
		jobs[i].Tenant = []string{"", "a", "b"}[s.random.IntN(3)]
		if s.random.IntN(4) == 0 {
			jobs[i].NotBefore = now.Add(s.delay())
		}
		if s.random.IntN(3) == 0 {
			jobs[i].DedupKey = fmt.Sprintf("key-%d", s.random.IntN(6))
		}
	}
	abort := s.random.IntN(6) == 0
	model := s.commit(s.model, s.model, jobs, abort)
	// The store's clock may be another.
	for i := range jobs {
		if !jobs[i].NotBefore.IsZero() {
			jobs[i].NotBefore = jobs[i].NotBefore.Add(s.k.now().Sub(now))
		}
	}
	got := s.commit(s.k.store, s.k.queue, jobs, abort)
	for i, want := range model {
		r := got[i]
		known, there := s.ids[r.ID]
		if r.Duplicate != want.Duplicate || r.State != want.State || r.Mismatch != want.Mismatch || there && known != want.ID || want.Duplicate && !there && !abort && !s.inCall(got[:i], r.ID) {
			s.k.Errorf("receipt %+v, want %+v", r, want)
		}
	}
	if abort {
		return
	}
	for i, r := range got {
		s.ids[r.ID] = model[i].ID
		if !r.Duplicate {
			s.events[jobs[i].ID] = r.ID
		}
	}
}

func (s *queueSimulation) inCall(receipts []core.Receipt, id string) bool {
	return slices.ContainsFunc(receipts, func(r core.Receipt) bool { return r.ID == id })
}

func (s *queueSimulation) commit(store interface {
	InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
}, q Queue, jobs []core.Job, abort bool,
) []core.Receipt {
	var receipts []core.Receipt
	err := store.InTransaction(s.k.ctx, func(ctx context.Context) (err error) {
		if receipts, err = q.Enqueue(ctx, jobs...); err == nil && abort {
			err = errAbort
		}
		return err
	})
	if err != nil && !errors.Is(err, errAbort) {
		s.k.Fatalf("enqueuing: %v", err)
	}
	return receipts
}

// claim lets the store choose, checks that it may choose so, and gives the same
// jobs to the model's worker.
func (s *queueSimulation) claim() {
	req := core.ClaimRequest{Sink: sinkName, Max: 1 + s.random.IntN(5), Lease: modelLease, Owner: "worker", FromRank: s.random.IntN(4) % 3}
	if s.random.IntN(3) == 0 {
		req.Tenants = [][]string{{"a"}, {"b", "a"}, {"", "a", "b"}}[s.random.IntN(3)]
	}
	due := map[string]core.JobInfo{}
	ready, _, err := s.model.Jobs(s.k.ctx, core.JobFilter{Sink: sinkName, State: core.JobReady}, "", 0)
	if err != nil {
		s.k.Fatalf("listing the model's jobs: %v", err)
	}
	now := time.Now().Add(time.Duration(s.ahead.Load()))
	for _, j := range ready {
		if !j.AvailableAt.After(now) && j.Priority.Rank() >= req.FromRank && (req.Tenants == nil || slices.Contains(req.Tenants, j.Tenant)) {
			due[j.ID] = j
		}
	}
	got := s.k.claimBy(s.k.queue, req)
	if len(got) != min(req.Max, len(due)) {
		s.k.Errorf("claimed %d with %+v, of %d that are due", len(got), req, len(due))
	}
	want := map[string]*core.Claimed{}
	lowest := core.High
	for _, c := range got {
		id := s.ids[c.ID]
		model, err := s.model.ClaimOnly(s.k.ctx, req, func(one string) bool { return one == id })
		if _, is := due[id]; err != nil || !is || len(model) != 1 {
			s.k.Fatalf("claimed %s, which isn't due: %v", c.Lease.Event.ID, err)
		}
		delete(due, id)
		want[c.ID] = model[0]
		lowest = max(lowest, c.Priority)
		s.handles = append(s.handles, handle{c, model[0]})
	}
	for _, j := range due {
		if j.Priority < lowest {
			s.k.Errorf("%s of the class %s waits behind the class %s", j.EventID, j.Priority, lowest)
		}
	}
	for _, c := range got {
		w := want[c.ID]
		if c.Lease.Attempt != w.Lease.Attempt || c.Redeliveries != w.Redeliveries || c.Priority != w.Priority ||
			c.Lease.Redelivered != w.Lease.Redelivered || c.Lease.Redriven != w.Lease.Redriven {
			s.k.Errorf("%s: claimed %+v, want %+v", c.Lease.Event.ID, c, w)
		}
	}
}

// some returns leases, mostly young ones, each once.
func (s *queueSimulation) some() []handle {
	var chosen []handle
	for range 1 + s.random.IntN(4) {
		if n := len(s.handles); n > 0 {
			i := n - 1 - s.random.IntN(min(n, 12))
			if !slices.Contains(chosen, s.handles[i]) {
				chosen = append(chosen, s.handles[i])
			}
		}
	}
	return chosen
}

// settle also settles what was settled before, and what was lost.
func (s *queueSimulation) settle() {
	var actual, model []core.Settlement
	overdue := map[*core.Claimed]bool{} // it may be gone, and then lost
	for _, h := range s.some() {
		overdue[h.real] = s.overdue(h.model.ID)
		one := core.Settlement{
			Kind: core.SettleKind(1 + s.random.IntN(5)), Receipt: fmt.Sprintf("r%d", s.step), Failure: refusal,
			Delay: []time.Duration{0, s.delay()}[s.random.IntN(2)], Uncounted: s.random.IntN(3) == 0,
		}
		one.Failure.Code = fmt.Sprintf("code-%d", s.random.IntN(3))
		one.Job = h.real
		actual = append(actual, one)
		one.Job = h.model
		model = append(model, one)
	}
	got, err := s.k.queue.Settle(s.k.ctx, actual)
	want, _ := s.model.Settle(s.k.ctx, model)
	if err != nil {
		s.k.Fatalf("settling: %v", err)
	}
	lost := map[*core.Claimed]bool{}
	for _, c := range want {
		lost[c] = true
	}
	for i, one := range actual {
		if told := slices.Contains(got, one.Job); told != lost[model[i].Job] && !overdue[one.Job] {
			s.k.Errorf("%s is told as lost: %t, want %t", one.Job.Lease.Event.ID, told, !told)
		}
	}
}

func (s *queueSimulation) extend() {
	var actual, model []*core.Claimed
	var held []handle
	for _, h := range s.some() {
		actual, model, held = append(actual, h.real), append(model, h.model), append(held, h)
	}
	got, err := s.k.queue.Extend(s.k.ctx, actual, modelLease)
	want, _ := s.model.Extend(s.k.ctx, model, modelLease)
	if err != nil {
		s.k.Fatalf("extending: %v", err)
	}
	// A lease that its holder settled may be told as lost or not.
	for _, h := range held {
		if lost := slices.Contains(got, h.real); lost && !slices.Contains(want, h.model) {
			s.k.Errorf("%s is told as lost", h.real.Lease.Event.ID)
		}
	}
}

func (s *queueSimulation) elapse() {
	d := modelStep * time.Duration(1+s.random.IntN(8))
	switch s.random.IntN(12) {
	case 0:
		d = 25 * time.Hour
	case 1:
		d = 8 * 24 * time.Hour
	}
	s.k.elapse(d)
	s.ahead.Add(int64(d))
}

func (s *queueSimulation) delay() time.Duration {
	return []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute}[s.random.IntN(3)]
}

func (s *queueSimulation) takeBack() {
	req := core.TakeBackRequest{MaxRedeliveries: s.random.IntN(3)}
	if s.random.IntN(4) == 0 {
		req.NoRepeat = []string{sinkName}
	}
	want, err := s.model.TakeBack(s.k.ctx, req)
	if err != nil {
		s.k.Fatalf("taking back in the model: %v", err)
	}
	s.k.takeBack(req, want)
}

// both does an operator's act on one job.
func (s *queueSimulation) both(act func(a core.Admin, filter core.JobFilter) (int64, error)) {
	if s.k.admin == nil || len(s.handles) == 0 {
		return
	}
	h := s.handles[s.random.IntN(len(s.handles))]
	want, err := act(s.model, core.JobFilter{IDs: []string{h.model.ID}})
	if err != nil {
		s.k.Fatalf("acting in the model: %v", err)
	}
	if want > 0 && s.overdue(h.model.ID) {
		s.k.Fatalf("the model kept a job beyond its time")
	}
	if got, err := act(s.k.admin, core.JobFilter{IDs: []string{h.real.ID}}); err != nil || got != want {
		s.k.Errorf("an act changed %d jobs, %v; want %d", got, err, want)
	}
}

// overdue tells whether the time of a job is over: it may be gone or not. Such
// jobs are removed before an operator acts.
func (s *queueSimulation) overdue(id string) bool {
	info, err := s.model.Job(s.k.ctx, id)
	return err == nil && !info.ExpireAt.IsZero() && info.ExpireAt.Before(time.Now().Add(time.Duration(s.ahead.Load())))
}

func (s *queueSimulation) retry() {
	s.clean()
	s.both(func(a core.Admin, f core.JobFilter) (int64, error) { return a.Retry(s.k.ctx, f, operator) })
}

func (s *queueSimulation) discard() {
	s.clean()
	s.both(func(a core.Admin, f core.JobFilter) (int64, error) {
		f.State = core.JobFailed
		return a.Discard(s.k.ctx, f, operator)
	})
}

func (s *queueSimulation) clean() {
	want, err := s.model.CleanJobs(s.k.ctx)
	if err != nil {
		s.k.Fatalf("cleaning the model: %v", err)
	}
	s.k.cleanJobs(want)
}

// look compares what is due.
func (s *queueSimulation) look() {
	want, there, _ := s.model.NextDue(s.k.ctx, sinkName, nil)
	if !there {
		want = -1
	}
	got, gotThere, err := s.k.queue.NextDue(s.k.ctx, sinkName, nil)
	if err != nil || gotThere != there || there && (got-want).Abs() > 30*time.Second {
		s.k.Errorf("next due in %v (%t), %v; want %v (%t)", got, gotThere, err, want, there)
	}
	tenants, _ := s.model.Tenants(s.k.ctx, sinkName, "", 10)
	s.k.wantTenants(tenants...)
}

// compareAll compares every job that was ever enqueued.
func (s *queueSimulation) compareAll() {
	if s.k.h.Job == nil {
		return
	}
	for event, id := range s.events {
		want, err := s.model.Job(s.k.ctx, s.ids[id])
		if err == nil && s.overdue(s.ids[id]) {
			continue
		}
		got, gotErr := s.k.h.Job(s.k.ctx, s.k.other, id)
		if errors.Is(gotErr, core.ErrNoJob) != errors.Is(err, core.ErrNoJob) {
			s.k.Errorf("%s: %v, want %v", event, gotErr, err)
			continue
		}
		if got.EventID != want.EventID || got.State != want.State || got.Attempts != want.Attempts || got.Redeliveries != want.Redeliveries ||
			got.Result != want.Result || got.Failure.Code != want.Failure.Code || got.PayloadBytes != want.PayloadBytes {
			s.k.Errorf("%s is %+v, want %+v", event, got, want)
		}
	}
}
