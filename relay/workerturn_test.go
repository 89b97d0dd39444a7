package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// oneLane has one call at a time, of one job.
func oneLane(w *relay.Worker) { w.Lanes, w.BatchJobs = 1, 1 }

func single(w *relay.Worker) { w.BatchJobs = 1 }

func TestHigherClassesGoFirst(t *testing.T) {
	for name, handler := range map[string]time.Duration{"quick": 5 * time.Millisecond, "slow": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.before = slow(handler)
				k.enqueue(jobs("n", 200)...)
				k.start(working(oneLane))
				pass(10*handler + handler/2)
				k.enqueue(job("urgent", prio(core.High)))
				began := time.Now()
				pass(600 * handler)
				// The claim that is under way or soon due, and the call.
				between(t, "the urgent one waited", k.sink.of("urgent")[0].at.Sub(began), 0, 300*time.Millisecond+handler)
				equal(t, "delivered", len(k.sink.got()), 201)
			})
		})
	}
}

func TestLowerClassesGetOneClaimInTen(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = slow(10 * time.Millisecond)
		k.enqueue(jobs("high", 5000, prio(core.High))...)
		k.enqueue(jobs("normal", 500)...)
		k.enqueue(jobs("low", 500, prio(core.Low))...)
		r := k.start(working(single))
		defer r.stop()
		pass(8 * time.Second)
		n := map[string]int{}
		for _, id := range k.sink.got() {
			n[strings.TrimRight(id, "0123456789")]++
		}
		t.Log(n)
		all := len(k.sink.got())
		if n["high"] < all*85/100 || n["normal"] < all/40 || n["low"] < all/40 {
			t.Errorf("of %d deliveries: %v", all, n)
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	// The nine's waits, with the noisy one's jobs before theirs, at the same time,
	// or not at all.
	waits := func(noisy int, before time.Duration) (p99 time.Duration) {
		inBubbleNow(t, func(t *testing.T, k *kit) {
			k.sink.before = slow(10 * time.Millisecond)
			r := k.start(working(single))
			defer r.stop()
			pass(time.Second)
			k.enqueue(jobs("noisy", noisy, tenant("noisy"))...)
			pass(before)
			began := time.Now()
			for i := range 10 {
				for n := range 9 {
					k.enqueue(job(fmt.Sprintf("calm%d-%d", n, i), tenant(fmt.Sprint("calm", n))))
				}
			}
			pass(2 * time.Second)
			var all []time.Duration
			for _, a := range k.sink.all() {
				if strings.HasPrefix(a.lease.Event.ID, "calm") {
					all = append(all, a.at.Sub(began))
				}
			}
			equal(t, "deliveries", len(all), 90)
			slices.Sort(all)
			p99 = all[len(all)*99/100]
		})
		return p99
	}
	alone := waits(0, 0)
	for _, before := range []time.Duration{0, 50 * time.Millisecond, time.Second, 3 * time.Second} {
		got := waits(10_000, before)
		t.Logf("alone %v, beside %v", alone, got)
		if got > 3*alone {
			t.Errorf("noisy %v before: p99 of the nine %v, alone %v", before, got, alone)
		}
	}
}

func TestMoreTenantsThanAClaimTakesGetTheirTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = slow(time.Millisecond)
		for i := range 350 {
			k.enqueue(job(fmt.Sprintf("a%03d", i), tenant(fmt.Sprintf("t%03d", i))), job(fmt.Sprintf("b%03d", i), tenant(fmt.Sprintf("t%03d", i))))
		}
		k.start(working(single))
		pass(5 * time.Second)
		k.counts("after", 0, 0, 700, 0)
	})
}

func TestAPausedTenantWaitsAndTheOthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = slow(100 * time.Millisecond)
		k.enqueue(jobs("p", 1000, tenant("p"))...)
		k.enqueue(jobs("q", 1000, tenant("q"))...)
		k.start(working(single))
		pass(5 * time.Second)
		pause := core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "p"}, For: time.Minute, By: "me"}
		if err := k.store.Pause(t.Context(), pause); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		pass(time.Minute - time.Second)
		last := time.Time{}
		for _, a := range k.sink.all() {
			if a.lease.Event.Tenant == "p" && a.at.After(last) {
				last = a.at
			}
		}
		between(t, "the last delivery after the pause began", last.Sub(began), -time.Second, time.Second)
		between(t, "deliveries of the other", time.Duration(len(k.sink.got())), 1000, 1200)
		pass(7 * time.Second)
		if all := k.sink.all(); all[len(all)-1].lease.Event.Tenant != "p" || time.Since(all[len(all)-1].at) > time.Second {
			t.Error("the tenant does not go on after the pause")
		}
		pass(time.Minute)
		k.counts("after", 0, 0, 2000, 0)
	})
}

func TestAPausedSinkStopsWithinASecondAndGoesOnWhenResumed(t *testing.T) {
	for name, watched := range map[string]bool{"stream": true, "poll": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				q := core.Queue(k.store)
				if !watched {
					q = unwatched{q}
				}
				k.sink.before = slow(100 * time.Millisecond)
				k.enqueue(jobs("j", 1000)...)
				k.start(working(single), through(q))
				pass(5 * time.Second)
				target := core.PauseTarget{Scope: core.PauseSink, Name: "s"}
				if err := k.store.Pause(t.Context(), core.Pause{PauseTarget: target, By: "me"}); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				calls := k.sink.callCount()
				pass(time.Hour)
				equal(t, "calls in the pause", k.sink.callCount(), calls)
				k.counts("in the pause", int64(1000-calls), 0, int64(calls), 0)
				if err := k.store.Resume(t.Context(), target); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				pass(10 * time.Second)
				between(t, "resumed after", k.sink.all()[calls].at.Sub(began), 0, 5*time.Second)
				pass(time.Minute)
				k.counts("after", 0, 0, 1000, 0)
			})
		})
	}
}

func TestRatesAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		edit      func(*relay.Worker)
		low, high int
	}{
		"of the worker":  {func(w *relay.Worker) { w.Rate = 20 }, 195, 205},
		"less than one":  {func(w *relay.Worker) { w.Rate = 0.5 }, 5, 6},
		"of each tenant": {func(w *relay.Worker) { w.TenantRate = 5 }, 148, 160},
		"slow tenants":   {func(w *relay.Worker) { w.TenantRate = 0.5 }, 15, 18},
		"both":           {func(w *relay.Worker) { w.Rate, w.TenantRate = 10, 5 }, 98, 103},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				q := newLine(k.store)
				for i := range 3 {
					name := string(rune('a' + i))
					k.enqueue(jobs(name, 400, tenant(name))...)
				}
				r := k.start(working(single, tc.edit), through(q))
				pass(10 * time.Second)
				n := len(k.sink.got())
				between(t, "deliveries in ten seconds", time.Duration(n), time.Duration(tc.low), time.Duration(tc.high))
				if name != "less than one" && q.count("claim") > n+20 {
					t.Errorf("%d claims for %d deliveries", q.count("claim"), n)
				}
				if ahead := r.worker().Ahead; ahead > 40 {
					t.Errorf("%d jobs ahead", ahead)
				}
				r.stop()
			})
		})
	}
}

func TestClaimsRunAheadNoFurtherThanATenthOfTheLease(t *testing.T) {
	for _, handler := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, time.Second, 30 * time.Second} {
		t.Run(handler.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.before = slow(handler)
				k.enqueue(jobs("j", 5000)...)
				q := newLine(k.store)
				most := 0
				r := k.start(working(func(w *relay.Worker) { w.Lease, w.BatchJobs, w.Lanes = 10*time.Second, 1, 4 }), through(q))
				for range 100 {
					pass(max(handler/3, time.Millisecond))
					most = max(most, r.worker().Ahead)
				}
				if can := 4 * int(time.Second/max(handler, time.Microsecond)); most > can {
					t.Errorf("%d jobs ahead: %d can start", most, can)
				}
				if handler == time.Millisecond && q.count("claim") > 30 {
					t.Errorf("%d claims for %d jobs", q.count("claim"), k.sink.callCount())
				}
				r.stop()
			})
		})
	}
}

func TestSlowerJobsAreGivenBackToOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = slow(time.Millisecond)
		k.enqueue(jobs("quick", 1000)...)
		k.enqueue(jobs("slow", 300)...)
		k.sink.before = func(ctx context.Context, leases []core.Lease) {
			if strings.HasPrefix(leases[0].Event.ID, "slow") {
				slow(10*time.Minute)(ctx, leases)
			}
		}
		r := k.start(working(single, func(w *relay.Worker) { w.Timeout = time.Hour }))
		pass(30 * time.Second)
		equal(t, "calls", r.worker().Calls, 5)
		equal(t, "ahead", r.worker().Ahead, 0)
		k.counts("after", 295, 5, 1000, 0)
		r.stop()
	})
}

// inBubbleNow is inBubble for a test that needs the outcome.
func inBubbleNow(t *testing.T, test func(t *testing.T, k *kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &faults{fail: map[string]error{}, hits: map[string]int{}}
		k := &kit{t: t, faults: f, sink: newScript(t), log: &logBook{}}
		k.store = memory.New(memory.Config{Fault: f.check})
		test(t, k)
	})
}
