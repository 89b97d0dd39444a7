package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// parking lets a relay park what is refused.
func (k *kit) parking(c *relay.Config) { c.Queue = k.store }

// holding lets it hold keys, too.
func (k *kit) holding(c *relay.Config) {
	c.Queue = k.store
	c.Routes[0].OnFailure = relay.Hold
}

// refuses makes a sink refuse some events for now, up to their nth try.
func refuses(n int, ids ...string) func(core.Lease, int) core.Result {
	return func(l core.Lease, try int) core.Result {
		if try <= n && slices.Contains(ids, l.Event.ID) {
			return refused("not today")
		}
		return core.Result{Outcome: core.Delivered}
	}
}

// rejects makes a sink refuse some events for good.
func rejects(ids ...string) func(core.Lease, int) core.Result {
	return func(l core.Lease, _ int) core.Result {
		if slices.Contains(ids, l.Event.ID) {
			return core.Result{Outcome: core.Rejected, Err: errDown}
		}
		return core.Result{Outcome: core.Delivered}
	}
}

// states returns "id=state" of the cursor's jobs, in order.
func (k *kit) states() (all []string) {
	k.t.Helper()
	for _, j := range k.jobs() {
		s := fmt.Sprintf("%s=%s", j.EventID, j.State)
		if j.Holds {
			s += "+holds"
		}
		all = append(all, s)
	}
	return all
}

// jobs returns the cursor's jobs by the position of their events.
func (k *kit) jobs() (all []core.JobInfo) {
	k.t.Helper()
	for _, p := range k.store.Parked() {
		j, err := k.store.Job(k.t.Context(), p.Cursor+"/"+p.Event.ID)
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, j)
	}
	return all
}

// operator is who acts in tests.
var operator = core.Act{By: "ada", Reason: "a test"}

func (k *kit) retry(id string) {
	k.t.Helper()
	n, err := k.store.Retry(k.t.Context(), core.JobFilter{IDs: []string{"r/" + id}}, operator)
	if err != nil || n != 1 {
		k.t.Fatalf("retried %d jobs, %v", n, err)
	}
}

func (k *kit) discard(id string) {
	k.t.Helper()
	n, err := k.store.Discard(k.t.Context(), core.JobFilter{IDs: []string{"r/" + id}}, operator)
	if err != nil || n != 1 {
		k.t.Fatalf("discarded %d jobs, %v", n, err)
	}
}

func TestARefusedEventIsParkedWithItsFollowersAndHoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(4, "a1")
		k.append("a1", "a2", "b1")
		r := k.start(k.parking)
		pass(500 * time.Millisecond)
		equalIDs(t, "jobs", k.states(), "a1=ready", "a2=ready")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		equal(t, "parked in status", r.route().Parked, 2)
		k.append("a3", "b2")
		pass(100 * time.Millisecond)
		equalIDs(t, "jobs, with one that was read later", k.states(), "a1=ready", "a2=ready", "a3=ready")
		equalIDs(t, "delivered meanwhile", k.sink.got(), "b1", "b2")
		s := r.route()
		if b := s.Blocked; s.BlockedKeys != 1 || b == nil || b.Key != "a" || b.EventID != "a1" || b.EventType != "t" || b.Reason != "not today" || b.Attempts != 1 || b.RetryAt.IsZero() {
			t.Errorf("blocked: %d, %+v", s.BlockedKeys, b)
		}
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "b1", "b2", "a1", "a2", "a3")
		equalIDs(t, "jobs at the end", k.states(), "a1=completed", "a2=completed", "a3=completed")
		tries := k.sink.of("a1")
		equal(t, "tries", len(tries), 5)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			equal(t, "attempt", tries[i].lease.Attempt, i+1)
			between(t, "wait", tries[i+1].at.Sub(tries[i].at), want*8/10, want*12/10)
		}
		equal(t, "parked in status", r.route().Parked, 0)
		k.append("a4")
		settle()
		equalIDs(t, "delivered directly again", k.sink.got()[5:], "a4")
		equal(t, "jobs in the end", len(k.jobs()), 3)
		equal(t, "lines when it began", k.log.with(slog.LevelWarn, "its key waits"), 1)
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "no key waits any more"), 1)
		equal(t, "lines", k.log.all(slog.LevelInfo), 3)
		r.stop()
	})
}

func TestAttemptsAreUsedUpThenTheEventFailsAndIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var failed []relay.FailedJob
		k.sink.reply = refuses(100, "a1")
		k.append("a1", "a2", "b1")
		r := k.start(k.parking, func(c *relay.Config) {
			c.Routes[0].MaxAttempts = 4
			c.OnFailed = func(_ context.Context, j relay.FailedJob) {
				failed = append(failed, j)
				panic("a bad hook")
			}
		})
		pass(time.Minute)
		equal(t, "tries", len(k.sink.of("a1")), 4)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a2")
		equalIDs(t, "jobs", k.states(), "a1=failed", "a2=completed")
		want := relay.FailedJob{
			ID: "r/a1", EventID: "a1", Key: "a", Type: "t", Sink: "s", Route: "r", Attempts: 4,
			Failure: core.Failure{Code: core.CodeExhausted, Reason: "not today"},
		}
		if len(failed) != 1 || failed[0] != want {
			t.Errorf("told %+v, want %+v", failed, want)
		}
		equal(t, "stored attempts", k.jobs()[0].Attempts, 4)
		equal(t, "stored reason", k.jobs()[0].Failure, want.Failure)
		equal(t, "lines about it", k.log.with(slog.LevelError, "failed for good"), 1)
		equal(t, "lines about the hook", k.log.with(slog.LevelError, "OnFailed panicked"), 1)
		r.stop()
	})
}

func TestAnEventAtWhichTheSinkPanicsUsesUpItsAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var redelivered []bool
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			for _, l := range ls {
				if l.Event.ID == "a1" {
					if len(ls) == 1 {
						redelivered = append(redelivered, l.Redelivered)
					}
					panic("can't render this")
				}
			}
		}
		k.append("a1", "a2", "b1")
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 3 })
		pass(10 * time.Minute)
		equalIDs(t, "jobs", k.states(), "a1=failed", "a2=completed")
		equal(t, "stored failure", k.jobs()[0].Failure, core.Failure{Code: core.CodeExhausted, Reason: "the sink panicked: can't render this"})
		if n := len(redelivered); n < 3 || !redelivered[n-1] {
			t.Errorf("tries alone, redelivered or not: %v", redelivered)
		}
		r.stop()
	})
}

func TestOneAttemptIsNoneToPark(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(100, "a1")
		k.append("a1", "a2")
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 1 })
		settle()
		equalIDs(t, "delivered", k.sink.got(), "a2")
		equalIDs(t, "jobs", k.states(), "a1=failed")
		r.stop()
	})
}

func TestAnEventRejectedForGoodLeavesItsKeyOrHoldsIt(t *testing.T) {
	for _, parked := range []bool{false, true} { // whether it is a job by then
		script := func(k *kit) {
			k.sink.reply = rejects("a2")
			if parked {
				k.sink.reply = func(l core.Lease, n int) core.Result {
					if l.Event.ID == "a1" {
						return refuses(1, "a1")(l, n)
					}
					return rejects("a2")(l, n)
				}
			}
			k.append("a1", "a2", "a3", "b1")
		}
		t.Run(fmt.Sprint("skip, parked ", parked), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				script(k)
				r := k.start(k.parking)
				pass(10 * time.Second)
				k.append("a4")
				settle()
				got := slices.DeleteFunc(k.sink.got(), func(id string) bool { return id == "b1" })
				equalIDs(t, "delivered", got, "a1", "a3", "a4")
				equal(t, "failed", slices.Contains(k.states(), "a2=failed"), true)
				equal(t, "held keys", r.route().HeldKeys, 0)
				r.stop()
			})
		})
		t.Run(fmt.Sprint("hold, parked ", parked), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				script(k)
				r := k.start(k.holding)
				pass(time.Hour)
				k.append("a4", "b2")
				pass(time.Minute)
				got := slices.DeleteFunc(k.sink.got(), func(id string) bool { return id[0] == 'b' })
				equalIDs(t, "delivered", got, "a1")
				equal(t, "tries", len(k.sink.of("a2")), 1)
				equal(t, "failed", slices.Contains(k.states(), "a2=failed+holds"), true)
				equal(t, "events beyond the saved position", k.unsettled(), 0)
				s := r.route()
				equal(t, "held keys", s.HeldKeys, 1)
				equal(t, "parked", s.Parked, 3)
				if s.Blocked == nil || s.Blocked.EventID != "a2" || !s.Blocked.RetryAt.IsZero() {
					t.Errorf("blocked: %+v", s.Blocked)
				}
				r.stop()
			})
		})
	}
}

func TestAHeldKeyGoesOnWhenItsFailedEventIsRetriedOrDiscarded(t *testing.T) {
	for name, act := range map[string]func(k *kit){
		"retried":   func(k *kit) { k.sink.answers(nil); k.retry("a1") },
		"discarded": func(k *kit) { k.sink.answers(nil); k.discard("a1") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.reply = rejects("a1")
				k.append("a1", "a2")
				r := k.start(k.holding)
				pass(time.Minute)
				k.append("a3")
				pass(time.Minute)
				act(k)
				pass(20 * time.Second)
				want := []string{"a1", "a2", "a3"}
				if name == "discarded" {
					want = want[1:]
				}
				equalIDs(t, "delivered", k.sink.got(), want...)
				equal(t, "held keys", r.route().HeldKeys, 0)
				k.append("a4")
				settle()
				equal(t, "delivered directly", k.sink.got()[len(want)], "a4")
				r.stop()
			})
		})
	}
}

func TestARetryOfASkippedEventIsMarkedAndComesBeforeWhatIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		k.sink.answers(func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a1" && n < 4 {
				return refused("still not")
			}
			return core.Result{Outcome: core.Delivered}
		})
		k.retry("a1")
		pass(16 * time.Second)
		k.append("a3")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a2", "a1", "a3")
		for i, a := range k.sink.of("a1")[1:] {
			equal(t, "redriven", a.lease.Redriven, true)
			equal(t, "attempt", a.lease.Attempt, i+1)
		}
		equal(t, "redriven of what follows", k.sink.of("a3")[0].lease.Redriven, false)
		r.stop()
	})
}

func TestAPolicyThatSaysSkipPassesWhatHeldBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1", "a2")
		r := k.start(k.holding)
		pass(time.Minute)
		r.stop()
		equalIDs(t, "jobs", k.states(), "a1=failed+holds", "a2=ready")
		r = k.start(k.parking)
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		r.stop()
		r = k.start(k.holding) // the failed job holds again what comes from now on
		k.append("a3")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		equal(t, "held keys", r.route().HeldKeys, 1)
		r.stop()
	})
}

func TestWhatFailedUnderSkipNeverHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(time.Minute)
		r.stop()
		r = k.start(k.holding)
		k.append("a3")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a2", "a3")
		r.stop()
	})
}

func TestAPoisonKeyKeepsNoOtherFromFlowing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1000, "p1")
		r := k.start(k.parking, func(c *relay.Config) { c.Routes[0].MaxAttempts = 1000 })
		k.append("p1")
		for i := range 1000 {
			k.append(fmt.Sprintf("h%d", i), fmt.Sprintf("p%d", i+2))
			settle()
			got := k.sink.got()
			equal(t, "delivered at once", got[len(got)-1], fmt.Sprintf("h%d", i))
			pass(20 * time.Millisecond)
		}
		equal(t, "events beyond the saved position", k.unsettled() < 10, true)
		r.stop()
	})
}

func TestTheParkedEventsOfAKeyAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var open atomic.Bool
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.AggregateID == "p" && !open.Load() {
				return refused("not yet")
			}
			return core.Result{Outcome: core.Delivered}
		}
		r := k.start(k.parking, func(c *relay.Config) {
			c.Routes[0].MaxParked, c.Routes[0].BatchEvents, c.Routes[0].MaxAttempts = 50, 10, 1000
			c.Routes[0].Backoff = relay.Backoff{Initial: time.Second, Max: 10 * time.Second}
		})
		k.append("p1")
		settle()
		k.append(numbered("p", 100)[1:]...)
		k.append("b1")
		pass(5 * time.Minute)
		parked := len(k.jobs())
		between(t, "parked", time.Duration(parked), 51, 60)
		equal(t, "delivered", len(k.sink.got()), 0)
		equal(t, "the line that tells it", k.log.with(slog.LevelWarn, "reading waits"), 1)
		equal(t, "stalled in status", r.route().Stalled, fmt.Sprintf("%d events of one key are parked, limit 50", parked))
		open.Store(true)
		pass(time.Minute)
		got := slices.DeleteFunc(k.sink.got(), func(id string) bool { return id == "b1" })
		equalIDs(t, "delivered", got, numbered("p", 100)...)
		equal(t, "delivered of others", len(k.sink.of("b1")), 1)
		equal(t, "the line that tells the end", k.log.with(slog.LevelInfo, "reading goes on"), 1)
		r.stop()
	})
}

func TestABusyKeyLeavesTheQueueAtLast(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = refuses(2, "p1")
		k.sink.before = func(context.Context, []core.Lease) { time.Sleep(10 * time.Millisecond) }
		k.append(numbered("p", 5000)...)
		r := k.start(k.parking, func(c *relay.Config) {
			c.Routes[0].MaxParked, c.Routes[0].BatchEvents, c.Routes[0].Window = 100, 50, 200
		})
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), numbered("p", 5000)...)
		if n := len(k.jobs()); n > 1000 {
			t.Errorf("%d of 5000 events went through the queue", n)
		}
		r.stop()
	})
}

func TestAnEventThatCannotBeDecodedKeepsTheOrderOfItsKey(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(2, "a1")
		k.append("a1")
		k.store.Put(memory.Foreign{Event: event("a2"), Err: errDown})
		k.store.Put(memory.Foreign{Event: core.Event{ID: "x"}, Err: errDown})
		k.append("a3")
		r := k.start(k.parking)
		pass(100 * time.Millisecond)
		equalIDs(t, "jobs at first", k.states(), "a1=ready", "a2=ready", "x=failed", "a3=ready")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a3")
		equalIDs(t, "jobs", k.states(), "a1=completed", "a2=failed", "x=failed", "a3=completed")
		equal(t, "code", k.jobs()[1].Failure.Code, core.CodeUndecodable)
		r.stop()
	})
}

func TestRunsOfAKeysJobsGoTogetherWhereTheSinkTakesThem(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = func(l core.Lease, n int) core.Result {
			return refuses(1, "a1", "a50")(l, n)
		}
		k.append(numbered("a", 100)...)
		r := k.start(k.parking)
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), numbered("a", 100)...)
		// a1 alone in vain, all to a50 in vain, and the rest.
		equal(t, "calls", k.sink.callCount() <= 4, true)
		r.stop()
	})
}
