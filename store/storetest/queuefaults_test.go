package storetest_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/storetest"
)

// queueFault is one way in which a queue is wrong.
type queueFault func(*brokenQueue)

// queueFaults are the queues that the suite must find, by name.
var queueFaults = merged(enqueueFaults, claimFaults, leaseFaults, takeBackFaults, redriveFaults, otherQueueFaults)

func merged(all ...map[string]queueFault) map[string]queueFault {
	sum := map[string]queueFault{}
	for _, some := range all {
		maps.Copy(sum, some)
	}
	return sum
}

var enqueueFaults = map[string]queueFault{
	"EnqueuesOutsideTransactions": func(q *brokenQueue) {
		q.onEnqueue = func(ctx context.Context, jobs []core.Job) ([]core.Receipt, error) {
			receipts, err := q.Store.Enqueue(ctx, jobs...)
			if errors.Is(err, core.ErrNoTransaction) {
				err = q.InTransaction(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
					receipts, err = q.Store.Enqueue(ctx, jobs...)
					return err
				})
			}
			return receipts, err
		}
	},
	"CommitsBesideTheTransaction": func(q *brokenQueue) {
		q.onEnqueue = func(_ context.Context, jobs []core.Job) (receipts []core.Receipt, err error) {
			err = q.InTransaction(context.Background(), func(ctx context.Context) (err error) {
				receipts, err = q.Store.Enqueue(ctx, jobs...)
				return err
			})
			return receipts, err
		}
	},
	"DedupIgnoresTenants": func(q *brokenQueue) {
		var mu sync.Mutex
		first := map[string]core.Job{}
		q.enqueuing(func(j *core.Job) {
			mu.Lock()
			defer mu.Unlock()
			if j.DedupKey == "" {
				return
			}
			if one, there := first[j.DedupKey]; there && one.Tenant != j.Tenant {
				j.Tenant = one.Tenant
			} else if !there {
				first[j.DedupKey] = *j
			}
		})
	},
	"JoinsTenantAndKey": func(q *brokenQueue) {
		q.enqueuing(func(j *core.Job) {
			if j.DedupKey != "" {
				j.DedupKey, j.Tenant = j.Tenant+j.DedupKey, ""
			}
		})
	},
	"DedupForgetsTheContent": func(q *brokenQueue) {
		q.onEnqueue = func(ctx context.Context, jobs []core.Job) ([]core.Receipt, error) {
			receipts, err := q.Store.Enqueue(ctx, jobs...)
			for i := range receipts {
				receipts[i].Mismatch = false
			}
			return receipts, err
		}
	},
	"DedupForgetsTheState": func(q *brokenQueue) {
		q.onEnqueue = func(ctx context.Context, jobs []core.Job) ([]core.Receipt, error) {
			receipts, err := q.Store.Enqueue(ctx, jobs...)
			for i := range receipts {
				if receipts[i].Duplicate {
					receipts[i].State = core.JobReady
				}
			}
			return receipts, err
		}
	},
	"DedupHasNoEnd": func(q *brokenQueue) {
		q.onEnqueue = func(ctx context.Context, jobs []core.Job) (receipts []core.Receipt, err error) {
			q.withClock(-20*365*24*time.Hour, func() { receipts, err = q.Store.Enqueue(ctx, jobs...) })
			return receipts, err
		}
	},
	"DropsDedupKeys":   func(q *brokenQueue) { q.enqueuing(func(j *core.Job) { j.DedupKey = "" }) },
	"DropsMaxAttempts": func(q *brokenQueue) { q.enqueuing(func(j *core.Job) { j.MaxAttempts = min(j.MaxAttempts, 0) }) },
}

var claimFaults = map[string]queueFault{
	"IgnoresPriorities": func(q *brokenQueue) { q.enqueuing(func(j *core.Job) { j.Priority = core.Normal }) },
	"IgnoresNotBefore":  func(q *brokenQueue) { q.enqueuing(func(j *core.Job) { j.NotBefore = time.Time{} }) },
	"IgnoresFromRank":   func(q *brokenQueue) { q.requesting(func(r *core.ClaimRequest) { r.FromRank = 0 }) },
	"IgnoresTenants":    func(q *brokenQueue) { q.requesting(func(r *core.ClaimRequest) { r.Tenants = nil }) },
	"ServesTheFirstTenantFirst": func(q *brokenQueue) {
		q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
			if req.Tenants == nil {
				return q.Store.Claim(ctx, req)
			}
			var all []*core.Claimed
			for _, tenant := range req.Tenants {
				one := req
				one.Tenants, one.Max = []string{tenant}, req.Max-len(all)
				if one.Max == 0 {
					break
				}
				got, err := q.Store.Claim(ctx, one)
				if err != nil {
					return all, err
				}
				all = append(all, got...)
			}
			return all, nil
		}
	},
	"IgnoresSpread": func(q *brokenQueue) { q.requesting(func(r *core.ClaimRequest) { r.Spread = 0 }) },
	"ClaimsOneMore": func(q *brokenQueue) {
		q.requesting(func(r *core.ClaimRequest) {
			if r.Max > 0 {
				r.Max++
			}
		})
	},
	"ClaimsLeasedJobs": func(q *brokenQueue) {
		q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
			got, err := q.Store.Claim(ctx, req)
			if err != nil || len(got) > 0 {
				return got, err
			}
			jobs, _, err := q.Jobs(ctx, core.JobFilter{Sink: req.Sink, State: core.JobActive}, "", req.Max)
			for _, j := range jobs {
				if l := q.newest(&core.Claimed{ID: j.ID}); l.Ref != nil {
					got = append(got, l)
				}
			}
			return got, err
		}
	},
	"DropsUndecodable": func(q *brokenQueue) {
		q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
			var whole []*core.Claimed
			got, err := q.Store.Claim(ctx, req)
			for _, c := range got {
				if c.Err == nil {
					whole = append(whole, c)
				}
			}
			return whole, err
		}
	},
	"CountsRedeliveriesAsAttempts": func(q *brokenQueue) { q.claiming(func(c *core.Claimed) { c.Lease.Attempt += c.Redeliveries }) },
	"HidesRedeliveries":            func(q *brokenQueue) { q.claiming(func(c *core.Claimed) { c.Lease.Redelivered = false }) },
	"DeadlineFromTheAnswer": func(q *brokenQueue) {
		q.claiming(func(c *core.Claimed) { c.Lease.Deadline = c.Lease.Deadline.Add(time.Second) })
	},
}

var leaseFaults = map[string]queueFault{
	"UsesTokensTwice": func(q *brokenQueue) {
		var mu sync.Mutex
		first, given := map[string]any{}, map[*core.Claimed]any{}
		q.claiming(func(c *core.Claimed) {
			mu.Lock()
			defer mu.Unlock()
			given[c] = c.Ref
			if _, there := first[c.ID]; !there {
				first[c.ID] = c.Ref
			}
			c.Ref = first[c.ID]
		})
		// genuine returns a lease as the store gave it.
		genuine := func(c *core.Claimed) *core.Claimed {
			mu.Lock()
			defer mu.Unlock()
			one := *c
			if ref, there := given[c]; there { // else it was lent in another way
				one.Ref = ref
			}
			return &one
		}
		q.onSettle = func(ctx context.Context, settlements []core.Settlement) (lost []*core.Claimed, err error) {
			for _, s := range settlements {
				c := s.Job
				s.Job = genuine(c)
				gone, failed := q.Store.Settle(ctx, []core.Settlement{s})
				if err = errors.Join(err, failed); len(gone) > 0 {
					lost = append(lost, c)
				}
			}
			return lost, err
		}
		q.onExtend = func(ctx context.Context, jobs []*core.Claimed, lease time.Duration) (lost []*core.Claimed, err error) {
			for _, c := range jobs {
				gone, failed := q.Store.Extend(ctx, []*core.Claimed{genuine(c)}, lease)
				if err = errors.Join(err, failed); len(gone) > 0 {
					lost = append(lost, c)
				}
			}
			return lost, err
		}
	},
	"SettlesUnfenced": func(q *brokenQueue) { q.settling(func(s *core.Settlement) { s.Job = q.newest(s.Job) }) },
	"ExtendsUnfenced": func(q *brokenQueue) {
		q.onExtend = func(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error) {
			newest := make([]*core.Claimed, len(jobs))
			for i, c := range jobs {
				newest[i] = q.newest(c)
			}
			return q.Store.Extend(ctx, newest, lease)
		}
	},
	"ExtendChangesNothing": func(q *brokenQueue) {
		q.onExtend = func(context.Context, []*core.Claimed, time.Duration) ([]*core.Claimed, error) { return nil, nil }
	},
	"HidesLostLeases": func(q *brokenQueue) {
		q.onSettle = func(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
			_, err := q.Store.Settle(ctx, settlements)
			return nil, err
		}
	},
	"RepeatedSettleIsLost": func(q *brokenQueue) {
		var mu sync.Mutex
		settled := map[any]bool{}
		q.onSettle = func(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
			lost, err := q.Store.Settle(ctx, settlements)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range settlements {
				if settled[s.Job.Ref] {
					lost = append(lost, s.Job)
				}
				settled[s.Job.Ref] = true
			}
			return lost, err
		}
	},
	"SettlesWhatTheFirstIs": func(q *brokenQueue) {
		q.onSettle = func(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
			for i := range settlements {
				if settlements[i].Kind != 0 {
					one := settlements[0]
					one.Job = settlements[i].Job
					settlements[i] = one
				}
			}
			return q.Store.Settle(ctx, settlements)
		}
	},
	"GiveBackCounts": func(q *brokenQueue) {
		q.settling(func(s *core.Settlement) {
			if s.Kind == core.GiveBack {
				s.Kind = core.Retry
			}
		})
	},
	"UncountedCounts": func(q *brokenQueue) { q.settling(func(s *core.Settlement) { s.Uncounted = false }) },
	"NothingCounts":   func(q *brokenQueue) { q.settling(func(s *core.Settlement) { s.Uncounted = true }) },
	"IgnoresDelays":   func(q *brokenQueue) { q.settling(func(s *core.Settlement) { s.Delay = 0 }) },
	"UnknownIsFailed": func(q *brokenQueue) {
		q.settling(func(s *core.Settlement) {
			if s.Kind == core.EndUnknown {
				s.Kind = core.Fail
			}
		})
	},
	"DropsResults": func(q *brokenQueue) { q.settling(func(s *core.Settlement) { s.Receipt = "" }) },
	"UsesTheWorkersClock": func(q *brokenQueue) {
		q.ahead.onSkew = func(d time.Duration) storetest.Queue {
			off := &brokenQueue{Store: q.Store, ahead: q.ahead, leases: map[string]*core.Claimed{}}
			off.onClaim = func(ctx context.Context, req core.ClaimRequest) (got []*core.Claimed, err error) {
				q.withClock(d, func() { got, err = q.Store.Claim(ctx, req) })
				return got, err
			}
			off.onTakeBack = func(ctx context.Context, req core.TakeBackRequest) (got core.TakeBackResult, err error) {
				q.withClock(d, func() { got, err = q.Store.TakeBack(ctx, req) })
				return got, err
			}
			off.onSettle = func(ctx context.Context, settlements []core.Settlement) (lost []*core.Claimed, err error) {
				q.withClock(d, func() { lost, err = q.Store.Settle(ctx, settlements) })
				return lost, err
			}
			off.onPause = func(ctx context.Context, p core.Pause) (err error) {
				q.withClock(d, func() { err = q.Store.Pause(ctx, p) })
				return err
			}
			off.enqueuing(func(j *core.Job) {
				if j.NotBefore.IsZero() {
					j.NotBefore = time.Now().Add(time.Duration(q.ahead.ahead.Load()) + d)
				}
			})
			return off
		}
	},
}

var takeBackFaults = map[string]queueFault{
	"TakeBackOverwrites": func(q *brokenQueue) {
		q.onTakeBack = func(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
			found, _, err := q.Jobs(ctx, core.JobFilter{State: core.JobActive}, "", req.Limit)
			if err != nil {
				return core.TakeBackResult{}, err
			}
			result, err := q.Store.TakeBack(ctx, req)
			for _, j := range found { // whatever a worker has made of it meanwhile
				n, _ := q.Store.Retry(ctx, core.JobFilter{IDs: []string{j.ID}, Code: core.CodeRejected}, core.Act{By: "taker"})
				result.Ready += int(n)
			}
			return result, err
		}
	},
	"TakesBackWithoutGrace": func(q *brokenQueue) {
		q.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
			req.Lease -= core.TakeBackGrace
			got, err := q.Store.Claim(ctx, req)
			for _, c := range got {
				c.Lease.Deadline = c.Lease.Deadline.Add(core.TakeBackGrace)
			}
			return got, err
		}
	},
	"NeverTakesBack": func(q *brokenQueue) {
		q.onTakeBack = func(context.Context, core.TakeBackRequest) (core.TakeBackResult, error) {
			return core.TakeBackResult{}, nil
		}
	},
	"TakesBackOfAnySink":   func(q *brokenQueue) { q.takingBack(func(r *core.TakeBackRequest) { r.Sinks = nil }) },
	"CrashesForEver":       func(q *brokenQueue) { q.takingBack(func(r *core.TakeBackRequest) { r.MaxRedeliveries = 1 << 30 }) },
	"TakesBackAllAtOnce":   func(q *brokenQueue) { q.takingBack(func(r *core.TakeBackRequest) { r.Limit = 0 }) },
	"RepeatsWhatMustNotBe": func(q *brokenQueue) { q.takingBack(func(r *core.TakeBackRequest) { r.NoRepeat = nil }) },
	"IgnoresReservations":  func(q *brokenQueue) { q.takingBack(func(r *core.TakeBackRequest) { r.Reservations = nil }) },
	"TakesFailedAnswersForNo": func(q *brokenQueue) {
		q.takingBack(func(r *core.TakeBackRequest) {
			if r.Reservations != nil {
				r.Reservations = forgiving{r.Reservations}
			}
		})
	},
}

// forgiving takes an error for an answer.
type forgiving struct{ core.Reservations }

func (f forgiving) Reserved(ctx context.Context, ids []string) (map[string]bool, error) {
	known, err := f.Reservations.Reserved(ctx, ids)
	if err != nil {
		return nil, nil //nolint:nilerr // this is the fault
	}
	return known, nil
}

var otherQueueFaults = map[string]queueFault{
	"DryRunActs": func(q *brokenQueue) {
		q.onRetry = func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
			act.DryRun = false
			return q.Store.Retry(ctx, f, act)
		}
	},
	"EmptyFilterSelectsAll": func(q *brokenQueue) {
		q.onDiscard = func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
			f.All = true
			return q.Store.Discard(ctx, f, act)
		}
	},
	"PauseShortens": func(q *brokenQueue) {
		q.onPause = func(ctx context.Context, p core.Pause) error {
			if all, err := q.Store.Pauses(ctx); err != nil {
				return err
			} else if i := indexOfPause(all, p.PauseTarget); i >= 0 && (all[i].By == "" || p.By != "") {
				if err := q.Resume(ctx, p.PauseTarget); err != nil {
					return err
				}
			}
			return q.Store.Pause(ctx, p)
		}
	},
	"PauseTouchesAnOperators": func(q *brokenQueue) {
		q.onPause = func(ctx context.Context, p core.Pause) error {
			all, err := q.Store.Pauses(ctx)
			if i := indexOfPause(all, p.PauseTarget); i >= 0 && p.By == "" {
				p.By = all[i].By
			}
			return errors.Join(err, q.Store.Pause(ctx, p))
		}
	},
	"PauseHasNoEnd": func(q *brokenQueue) {
		q.onPause = func(ctx context.Context, p core.Pause) error {
			p.For = 0
			return q.Store.Pause(ctx, p)
		}
	},
	"PausesAreByName": func(q *brokenQueue) {
		q.onPause = func(ctx context.Context, p core.Pause) error {
			p.Scope = core.PauseSink
			return q.Store.Pause(ctx, p)
		}
	},
	"WakesForEverything": func(q *brokenQueue) {
		var mu sync.Mutex
		tell := map[int]func(core.Wake){}
		q.onWatch = func(ctx context.Context, wake func(core.Wake)) error {
			mu.Lock()
			tell[len(tell)] = wake
			mu.Unlock()
			return q.Store.Watch(ctx, wake)
		}
		all := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, wake := range tell {
				wake(core.Wake{})
			}
		}
		q.claiming(func(*core.Claimed) { all() })
		q.settling(func(*core.Settlement) { all() })
		q.onExtend = func(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error) {
			all()
			return q.Store.Extend(ctx, jobs, lease)
		}
	},
	"WakesForNamedSinksAlone": func(q *brokenQueue) {
		q.onWatch = func(ctx context.Context, wake func(core.Wake)) error {
			return q.Store.Watch(ctx, func(w core.Wake) {
				if w.Sink != "" {
					wake(w)
				}
			})
		}
	},
	"WatchGoesOn": func(q *brokenQueue) {
		q.onWatch = func(ctx context.Context, wake func(core.Wake)) error {
			return q.Store.Watch(context.WithoutCancel(ctx), wake)
		}
	},
	"ForgetsATenant": func(q *brokenQueue) {
		q.onTenants = func(names []string) []string { return names[:max(0, len(names)-1)] }
	},
	"DueTooLate": func(q *brokenQueue) {
		q.onNextDue = func(d time.Duration, there bool) (time.Duration, bool) { return d + time.Second, there }
	},
	"CleansNothing": func(q *brokenQueue) { q.onClean = func(context.Context) (int64, error) { return 0, nil } },
	"CleansEverythingFinal": func(q *brokenQueue) {
		q.onClean = func(ctx context.Context) (int64, error) {
			n, err := q.Store.CleanJobs(ctx)
			for _, state := range []core.JobState{core.JobFailed, core.JobUnknown} {
				more, _ := q.Store.Discard(ctx, core.JobFilter{State: state, OlderThan: 365 * 24 * time.Hour}, core.Act{By: "cleaner"})
				n += more
			}
			return n, err
		}
	},
}

func indexOfPause(all []core.Pause, target core.PauseTarget) int {
	for i, p := range all {
		if p.PauseTarget == target {
			return i
		}
	}
	return -1
}
