package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestLeasesOfParkedJobsAreExtendedWhileTheSinkIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			if ls[0].Attempt == 2 {
				time.Sleep(50 * time.Second)
			}
		}
		k.sink.reply = refuses(1, "a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		between(t, "extensions", time.Duration(k.faults.count(memory.OpExtend)), 9, 11)
		equal(t, "redeliveries", k.jobs()[0].Redeliveries, 0)
		r.stop()
	})
}

func TestACallOfJobsEndsWhenTheirLeasesCannotBeExtended(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var took time.Duration
		k.sink.before = func(ctx context.Context, ls []core.Lease) {
			if ls[0].Attempt == 2 && took == 0 {
				began := time.Now()
				<-ctx.Done()
				took = time.Since(began)
			}
		}
		k.sink.reply = refuses(1, "a1")
		k.faults.set(errDown, memory.OpExtend)
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(10 * time.Minute)
		equal(t, "the call ended after", took, lease)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		r.stop()
	})
}

func TestAnOutageCostsParkedJobsNoAttempt(t *testing.T) {
	for _, o := range []core.Outcome{core.Unavailable, core.Throttled, core.NotAttempted} {
		t.Run(o.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				var down atomic.Bool
				k.sink.reply = func(l core.Lease, n int) core.Result {
					if down.Load() {
						r := outcome(o)
						r.RetryAfter = 10 * time.Second
						return r
					}
					return refuses(2, "a1", "b1", "c1")(l, n)
				}
				k.append("a1", "a2", "b1", "b2", "c1")
				r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 3 })
				settle()
				down.Store(true)
				claims := k.faults.count(memory.OpClaimJobs)
				pass(time.Hour)
				claims = k.faults.count(memory.OpClaimJobs) - claims
				between(t, "claims in an hour without the sink", time.Duration(claims), 60, 400)
				equal(t, "delivered", len(k.sink.got()), 0)
				for _, j := range k.jobs() {
					equal(t, "state of "+j.EventID, j.State, core.JobReady)
					if j.Attempts > 1 {
						t.Errorf("%s has %d attempts", j.EventID, j.Attempts)
					}
				}
				down.Store(false)
				pass(time.Minute)
				equal(t, "delivered", len(k.sink.got()), 5)
				r.stop()
			})
		})
	}
}

func TestAnOutageOfOthersHoldsParkedJobsBackToo(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var down atomic.Bool
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if down.Load() {
				return outcome(core.Unavailable)
			}
			return refuses(1, "a1")(l, n)
		}
		k.append("a1")
		r := k.start(k.parking, func(c *relay.Config) {
			c.Routes[0].OutageBackoff = relay.Backoff{Initial: time.Minute, Max: time.Minute}
		})
		settle()
		down.Store(true)
		k.append("b1")
		settle()
		down.Store(false)
		calls := k.sink.callCount()
		pass(45 * time.Second) // a1 has long been due
		equal(t, "calls while the gate is shut", k.sink.callCount(), calls)
		equal(t, "claims while the gate is shut", k.faults.count(memory.OpClaimJobs), 0)
		pass(time.Minute)
		equal(t, "delivered", len(k.sink.got()), 2)
		r.stop()
	})
}

func TestADrainSettlesTheCallsOfJobsThatAreUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			if ls[0].Attempt == 2 {
				time.Sleep(10 * time.Second)
			}
		}
		k.sink.reply = refuses(1, "a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(2 * time.Second)
		equalIDs(t, "jobs", k.states(), "a1=active", "a2=ready")
		r.stop()
		equalIDs(t, "jobs after the drain", k.states(), "a1=completed", "a2=ready")
	})
}

func TestADrainGivesBackWhatWasClaimedAndNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		k.faults.onEach(func(op string) error {
			if op == memory.OpClaimJobs {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(2 * time.Second)
		r.stop()
		equalIDs(t, "jobs after the drain", k.states(), "a1=ready", "a2=ready")
		equal(t, "claims", k.faults.count(memory.OpClaimJobs), 1)
		equal(t, "attempts", k.jobs()[0].Attempts, 1)
		equal(t, "calls", k.sink.callCount(), 1)
	})
}

func TestAParkedJobOfUnknownOutcomeIsSentAgainAndMarked(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a1" && n < 4 {
				return []core.Result{refused("not today"), outcome(core.Unknown), outcome(core.Unknown)}[n-1]
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		for i, a := range k.sink.of("a1") {
			equal(t, "attempt", a.lease.Attempt, []int{1, 2, 2, 2}[i])
			equal(t, "redelivered", a.lease.Redelivered, i > 1)
		}
		r.stop()
	})
}

func TestAParkedJobThatAloneEndsUnknownIsRefusedTheThirdTime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			switch {
			case l.Event.AggregateID != "p":
				return core.Result{Outcome: core.Delivered}
			case n == 1:
				return refused("not today")
			}
			return outcome(core.Unknown)
		}
		k.append("p1", "p2")
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 3 })
		for i := range 1000 {
			k.append(fmt.Sprint("x", i))
			pass(100 * time.Millisecond)
		}
		tries := k.sink.of("p1")
		for i, want := range []int{1, 2, 2, 2, 3} {
			equal(t, "attempt", tries[i].lease.Attempt, want)
			equal(t, "redelivered", tries[i].lease.Redelivered, i > 1)
		}
		j := k.jobs()[0]
		equal(t, "state", j.State, core.JobFailed)
		equal(t, "code", j.Failure.Code, core.CodeExhausted)
		r.stop()
	})
}

func TestWhatMustNotRepeatEndsAsUnknown(t *testing.T) {
	for _, parked := range []bool{false, true} {
		t.Run(fmt.Sprint("parked ", parked), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				var told []relay.FailedJob
				k.sink.caps.NoRepeat = true
				k.sink.reply = func(l core.Lease, n int) core.Result {
					switch {
					case l.Event.ID != "a1":
						return core.Result{Outcome: core.Delivered}
					case parked && n == 1:
						return refused("not today")
					}
					return outcome(core.Unknown)
				}
				k.append("a1", "a2")
				r := k.start(k.holding, func(c *relay.Config) {
					c.OnFailed = func(_ context.Context, j relay.FailedJob) { told = append(told, j) }
				})
				pass(time.Minute)
				equal(t, "tries", len(k.sink.of("a1")), map[bool]int{false: 1, true: 2}[parked])
				equalIDs(t, "delivered", k.sink.got(), "a2")
				equal(t, "state", k.jobs()[0].State, map[bool]core.JobState{false: core.JobFailed, true: core.JobUnknown}[parked])
				equal(t, "code", k.jobs()[0].Failure.Code, core.CodeUnknown)
				if len(told) != 1 || told[0].EventID != "a1" {
					t.Errorf("told %+v", told)
				}
				r.stop()
			})
		})
	}
}

func TestASinkThatPanicsAtAParkedJobFailsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			for _, l := range ls {
				if l.Event.ID == "p1" && l.Attempt > 1 {
					panic("can't render this")
				}
			}
		}
		k.sink.reply = refuses(1, "p1", "a1", "b1")
		k.append("p1", "p2", "a1", "a2", "b1")
		r := k.start(k.parking)
		pass(time.Minute)
		got := k.sink.got()
		slices.Sort(got)
		equalIDs(t, "delivered", got, "a1", "a2", "b1")
		equal(t, "state of the poison", k.states()[0], "p1=ready")
		r.stop()
	})
}

func TestAJobThatKillsItsProcessEndsAsCrashed(t *testing.T) {
	for _, policy := range []relay.FailurePolicy{relay.Skip, relay.Hold} {
		t.Run(policy.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.reply = refuses(1, "p1")
				k.append("p1", "p2", "a1")
				r := k.start(k.holding, func(c *relay.Config) { c.Routes[0].OnFailure = policy })
				settle()
				r.stop()
				for range core.DefaultMaxRedeliveries + 1 {
					f := k.former(0)
					f.claim(1)
					pass(lease + core.TakeBackGrace + time.Second)
					if _, err := k.store.TakeBack(t.Context(), core.TakeBackRequest{}); err != nil {
						t.Fatal(err)
					}
				}
				r = k.start(k.holding, func(c *relay.Config) { c.Routes[0].OnFailure = policy })
				pass(time.Minute)
				want := map[relay.FailurePolicy]string{
					relay.Skip: "p1=failed p2=completed", relay.Hold: "p1=failed+holds p2=ready",
				}[policy]
				equal(t, "jobs", strings.Join(k.states(), " "), want)
				equal(t, "code", k.jobs()[0].Failure.Code, core.CodeCrashed)
				r.stop()
			})
		})
	}
}

func TestACarefulTermSendsParkedJobsOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "b1", "c1", "d1")
		f := k.former(4)
		f.park(core.JobReady, 0, 1, 2, 3)
		f.save(4)
		pass(lease)
		k.die(3, -1)
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].BatchEvents = 4 })
		pass(time.Minute)
		var sizes []int
		for _, a := range k.sink.all() {
			sizes = append(sizes, a.with)
		}
		// The first alone, then twice as many with each that got through.
		if !slices.Equal(sizes, []int{1, 2, 2, 1}) {
			t.Errorf("events in the calls: %v", sizes)
		}
		equal(t, "delivered", len(k.sink.got()), 4)
		r.stop()
	})
}

func TestAnOperatorCanDiscardWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1000, "a1")
		k.append("a1", "a2")
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 1000 })
		pass(10 * time.Minute)
		k.discard("a1")
		pass(openJobsEvery)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "no key waits any more"), 1)
		r.stop()
	})
}

func TestARetryByAPersonIsSeenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(20 * time.Second)
		k.sink.answers(nil)
		k.retry("a1")
		pass(1100 * time.Millisecond)
		equalIDs(t, "delivered", k.sink.got(), "a2", "a1")
		r.stop()
	})
}

func TestAnIdleRelayWithParkedJobsAsksSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1", "a2")
		r := k.start(k.holding)
		pass(time.Minute)
		listed := k.faults.count(memory.OpOpenJobs)
		pass(time.Hour)
		between(t, "listings in an hour", time.Duration(k.faults.count(memory.OpOpenJobs)-listed), 239, 241)
		equal(t, "claims", k.faults.count(memory.OpClaimJobs), 0)
		r.stop()
	})
}
