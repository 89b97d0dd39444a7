package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// reservations is what a test says was begun.
type reservations struct {
	mu       sync.Mutex
	reserved map[string]bool
	err      error
	asked    []string
}

func (r *reservations) Reserved(_ context.Context, ids []string) (map[string]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, ids...)
	return r.reserved, r.err
}

func takeBackRules() []rule {
	noRepeat := []string{sinkName}
	return []rule{
		queueRule("WaitsForTheGrace", func(k *queueKit) {
			k.enqueueOne("a")
			k.claim("a")
			k.elapse(lease - time.Minute)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.elapse(time.Minute + core.TakeBackGrace/2)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.claim()
			k.elapse(core.TakeBackGrace)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Ready: 1})
			k.claim("a")
		}, elapsing),
		queueRule("RunningLeasesAreLeft", func(k *queueKit) {
			k.enqueue(job("a"), job("b"))
			k.claimBy(k.queue, core.ClaimRequest{Max: 1})
			k.claimBy(k.queue, core.ClaimRequest{Max: 1, Lease: 3 * lease})
			k.lapse(1)
			k.claim("a")
		}, elapsing),
		queueRule("OnlyOfTheNamedSinks", func(k *queueKit) {
			k.enqueueOne("a")
			k.claim("a")
			k.elapse(lease + 2*core.TakeBackGrace)
			k.takeBack(core.TakeBackRequest{Sinks: []string{"another"}}, core.TakeBackResult{})
			k.takeBack(core.TakeBackRequest{Sinks: []string{}}, core.TakeBackResult{})
			k.takeBack(core.TakeBackRequest{Sinks: []string{"another", sinkName}}, core.TakeBackResult{Ready: 1})
		}, elapsing),
		queueRule("NothingToTakeBack", func(k *queueKit) {
			k.enqueueOne("a")
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{})
			k.claim("a")
		}),
		queueRule("TakenBackIsRedelivered", func(k *queueKit) {
			k.enqueueOne("a")
			for n := range 3 {
				got := k.claimOne("a")
				if got.Redeliveries != n || got.Lease.Redelivered != (n > 0) || got.Lease.Attempt != 1 {
					k.Errorf("lease %d: %d redeliveries, redelivered %t, attempt %d",
						n, got.Redeliveries, got.Lease.Redelivered, got.Lease.Attempt)
				}
				k.lapse(1)
			}
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal}, k.claimOne("a"))
			if got := k.claimOne("a"); got.Lease.Attempt != 2 || !got.Lease.Redelivered || got.Redeliveries != 3 {
				k.Errorf("after a retry: %+v, %d redeliveries", got.Lease, got.Redeliveries)
			}
		}, elapsing),
		queueRule("CrashesEndAsFailed", func(k *queueKit) {
			r := k.enqueueOne("a")
			req := core.TakeBackRequest{MaxRedeliveries: 2}
			for range 2 {
				k.claim("a")
				k.elapse(lapse)
				k.takeBack(req, core.TakeBackResult{Ready: 1})
			}
			k.claim("a")
			k.elapse(lapse)
			k.takeBack(req, core.TakeBackResult{Crashed: 1})
			k.claim()
			info := k.wantState(r.ID, core.JobFailed)
			if info.Failure.Code != core.CodeCrashed || info.Failure.Reason == "" || info.FinishedAt.IsZero() || info.PayloadBytes == 0 {
				k.Errorf("failed as %+v", info)
			}
			if info.Redeliveries != 2 || info.Attempts != 0 {
				k.Errorf("%d redeliveries and %d attempts, want 2 and 0", info.Redeliveries, info.Attempts)
			}
			k.takeBack(req, core.TakeBackResult{})
		}, elapsing, inspecting),
		queueRule("FiveRedeliveriesUnlessAskedOtherwise", func(k *queueKit) {
			k.enqueueOne("a")
			for range core.DefaultMaxRedeliveries {
				k.claim("a")
				k.lapse(1)
			}
			k.claim("a")
			k.elapse(lapse)
			k.takeBack(core.TakeBackRequest{}, core.TakeBackResult{Crashed: 1})
		}, elapsing),
		queueRule("LimitBoundsOneCall", func(k *queueKit) {
			k.enqueue(numbered("j", 5, nil)...)
			k.claimBy(k.queue, core.ClaimRequest{})
			k.elapse(lapse)
			for _, n := range []int{2, 2, 1, 0} {
				k.takeBack(core.TakeBackRequest{Limit: 2}, core.TakeBackResult{Ready: n})
			}
			if got := len(k.claimBy(k.queue, core.ClaimRequest{})); got != 5 {
				k.Errorf("claimed %d jobs, want 5", got)
			}
		}, elapsing),
		queueRule("NoRepeatEndsAsUnknown", func(k *queueKit) {
			other := job("b")
			other.Sink = "other"
			r := k.enqueue(job("a"), other)
			k.claim("a")
			k.claimBy(k.queue, core.ClaimRequest{Sink: "other"})
			k.elapse(lapse)
			k.takeBack(core.TakeBackRequest{NoRepeat: noRepeat}, core.TakeBackResult{Ready: 1, Unknown: 1})
			k.claim()
			if info := k.wantState(r[0].ID, core.JobUnknown); info.Failure.Reason == "" || info.FinishedAt.IsZero() {
				k.Errorf("ended as %+v", info)
			}
			k.wantState(r[1].ID, core.JobReady)
		}, elapsing, inspecting),
		queueRule("ReservationsDecide", func(k *queueKit) {
			other := job("other")
			other.Sink = "other"
			r := k.enqueue(job("begun"), job("not-begun"), job("untold"), other)
			k.claim("begun", "not-begun", "untold")
			k.claimBy(k.queue, core.ClaimRequest{Sink: "other"})
			k.elapse(lapse)
			known := &reservations{reserved: map[string]bool{r[0].ID: true, r[1].ID: false}}
			k.takeBack(core.TakeBackRequest{NoRepeat: noRepeat, Reservations: known}, core.TakeBackResult{Ready: 3, Unknown: 1})
			k.wantState(r[0].ID, core.JobUnknown)
			k.wantDue("not-begun", "untold")
			if want := sorted(idsOfReceipts(r[:3])); !slices.Equal(sorted(known.asked), want) {
				k.Errorf("asked about %v, want %v", known.asked, want)
			}
		}, elapsing, inspecting),
		queueRule("FailingReservationsLeaveTheJobs", func(k *queueKit) {
			r := k.enqueueOne("a")
			k.claim("a")
			k.elapse(lapse)
			boom := errors.New("boom")
			req := core.TakeBackRequest{NoRepeat: noRepeat, Reservations: &reservations{err: boom}}
			if got, err := k.queue.TakeBack(k.ctx, req); !errors.Is(err, boom) || got != (core.TakeBackResult{}) {
				k.Errorf("took back %+v, %v; want nothing and the error", got, err)
			}
			k.wantState(r.ID, core.JobActive)
			req.Reservations = &reservations{}
			k.takeBack(req, core.TakeBackResult{Ready: 1})
		}, elapsing, inspecting),
		// What happens while Reservations are asked stands.
		queueRule("SettledMeanwhileIsLeft", func(k *queueKit) {
			for kind, name := range kindNames {
				r := k.enqueueOne(name)
				got := k.claimOne(name)
				k.elapse(lapse)
				k.takeBackWhile(func() { k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: 1000 * time.Hour}, got) })
				if info := k.wantState(r.ID, settledStates[kind]); info.Redeliveries != 0 {
					k.Errorf("%s counts %d redeliveries", name, info.Redeliveries)
				}
			}
		}, elapsing, inspecting),
		queueRule("ExtendedMeanwhileIsLeft", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			k.elapse(lapse)
			k.takeBackWhile(func() { k.wantLost(k.extend(k.second, got)) })
			k.settle(core.Settlement{Kind: core.Complete}, got)
		}, elapsing),
		queueRule("LentAgainMeanwhileIsLeft", func(k *queueKit) {
			k.enqueueOne("a")
			stale := k.claimOne("a")
			k.elapse(lapse)
			var holder *core.Claimed
			k.takeBackWhile(func() {
				k.settle(core.Settlement{Kind: core.GiveBack}, stale)
				holder = k.claimOne("a")
			})
			k.settle(core.Settlement{Kind: core.Complete}, holder)
		}, elapsing),
		queueRule("SettledJobIsNeverOverwritten", checkTakeBackRace, elapsing, inspecting),
	}
}

// during are Reservations that say that everything was begun, after something
// else has happened.
type during func()

func (d during) Reserved(_ context.Context, ids []string) (map[string]bool, error) {
	d()
	begun := map[string]bool{}
	for _, id := range ids {
		begun[id] = true
	}
	return begun, nil
}

// takeBackWhile fails unless TakeBack finds nothing to take, since something
// happens after it has looked.
func (k *queueKit) takeBackWhile(happens func()) {
	k.Helper()
	asked := 0
	k.takeBack(core.TakeBackRequest{NoRepeat: []string{sinkName}, Reservations: during(func() {
		asked++
		happens()
	})}, core.TakeBackResult{})
	if asked != 1 {
		k.Fatalf("the reservations were asked %d times, want once", asked)
	}
}

// race is one job whose worker is late.
type race struct {
	receipt core.Receipt
	job     *core.Claimed
	kind    core.SettleKind
	lost    bool
	// again is the lease that the worker got after it had settled the first.
	again *core.Claimed
}

// checkTakeBackRace: workers settle jobs whose leases ran out while others take
// them back. Each job is either settled, or taken back and the worker is told.
// A lease that was given meanwhile is not taken.
func checkTakeBackRace(k *queueKit) {
	for round := 0; round*100 < k.h.Races; round++ {
		sink := fmt.Sprintf("round-%d", round)
		races := k.startRaces(sink, min(100, k.h.Races-round*100))
		k.elapse(lapse)
		over := make(chan struct{})
		var workers, takers sync.WaitGroup
		taken := make([]core.TakeBackResult, 3)
		for i := range taken {
			q := k.queue
			if i%2 == 1 {
				q = k.second
			}
			takers.Go(func() {
				for last := false; !last; {
					select {
					case <-over:
						last = true
					default:
					}
					got, err := q.TakeBack(k.ctx, core.TakeBackRequest{Limit: 7 + 10*i})
					if err != nil {
						k.Errorf("taking back: %v", err)
						return
					}
					taken[i].Ready += got.Ready
					if got.Crashed+got.Unknown > 0 {
						k.Errorf("took back %+v", got)
					}
				}
			})
		}
		for w := range 4 {
			workers.Go(func() {
				for i := w; i < len(races); i += 4 {
					races[i].run(k, sink)
				}
			})
		}
		workers.Wait()
		close(over)
		takers.Wait()
		back := 0
		for _, t := range taken {
			back += t.Ready
		}
		k.checkRaces(races, back)
		if k.Failed() {
			k.Fatalf("in round %d", round)
		}
	}
}

// startRaces enqueues and claims jobs, several of them under one token.
func (k *queueKit) startRaces(sink string, n int) []*race {
	receipts := k.enqueue(numbered(sink, n, func(j *core.Job) { j.Sink = sink })...)
	byID := map[string]*core.Claimed{}
	for len(byID) < n {
		got := k.claimBy(k.queue, core.ClaimRequest{Sink: sink, Max: 5})
		if len(got) == 0 {
			k.Fatalf("claimed %d of %d jobs", len(byID), n)
		}
		for _, c := range got {
			byID[c.ID] = c
		}
	}
	kinds := []core.SettleKind{core.Complete, core.Fail, core.Retry, core.EndUnknown, core.Complete}
	races := make([]*race, n)
	for i, r := range receipts {
		races[i] = &race{receipt: r, job: byID[r.ID], kind: kinds[i%len(kinds)]}
	}
	return races
}

func (r *race) run(k *queueKit, sink string) {
	lost, err := k.queue.Settle(k.ctx, []core.Settlement{{Job: r.job, Kind: r.kind, Failure: refusal}})
	if err != nil {
		k.Errorf("settling: %v", err)
		return
	}
	r.lost = len(lost) > 0
	if r.kind != core.Retry || r.lost {
		return
	}
	// What this gets may be any job of the round; no one may take it.
	got, err := k.tryClaim(k.queue, core.ClaimRequest{Sink: sink, Max: 1, Lease: 100 * lease})
	if err != nil {
		k.Errorf("claiming: %v", err)
		return
	}
	if len(got) == 1 {
		r.again = got[0]
	}
}

func (k *queueKit) checkRaces(races []*race, back int) {
	k.Helper()
	lent := map[string]*core.Claimed{}
	for _, r := range races {
		if r.again != nil {
			lent[r.again.ID] = r.again
		}
	}
	for _, r := range races {
		want := settledStates[r.kind]
		if r.lost {
			back--
			want = core.JobReady
		}
		again := lent[r.receipt.ID]
		if again != nil {
			want = core.JobActive
		}
		if info := k.info(r.receipt.ID); info.State != want {
			k.Errorf("a job is %s after %s (told as lost: %t), want %s", info.State, kindNames[r.kind], r.lost, want)
		}
		if again != nil {
			k.wantLost(k.trySettle(core.Settlement{Kind: core.Complete}, again))
		}
	}
	if back != 0 {
		k.Errorf("%d jobs were taken back that no worker lost", back)
	}
}
