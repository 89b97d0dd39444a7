package relay_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

// lapse lends a job to somebody who is never heard of again, and waits until it
// was taken back.
func (k *kit) lapse() {
	k.t.Helper()
	got, err := k.store.Claim(k.t.Context(), core.ClaimRequest{Sink: "s", Max: 1, Lease: time.Second, Owner: "silent"})
	if err != nil || len(got) != 1 {
		k.t.Fatalf("claimed %d jobs, %v", len(got), err)
	}
	pass(time.Minute)
}

func TestAJobThatIsTakenBackOnceTooOftenIsTold(t *testing.T) {
	for _, c := range []struct {
		name     string
		noRepeat bool
		lapses   int
		state    core.JobState
		failure  core.Failure
	}{
		{"crashed", false, 3, core.JobFailed, core.Failure{Code: core.CodeCrashed, Reason: "the lease ran out 3 times"}},
		{"unknown", true, 1, core.JobUnknown, core.Failure{Code: core.CodeUnknown, Reason: "the lease ran out after the delivery may have begun"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.caps.NoRepeat = c.noRepeat
				id := k.enqueue(job("a", tenant("x")))[0]
				var told []relay.FailedJob
				r := k.start(k.parking, func(c *relay.Config) {
					c.MaxRedeliveries = 2
					c.OnFailed = func(_ context.Context, j relay.FailedJob) { told = append(told, j) }
				})
				for range c.lapses {
					k.lapse()
				}
				equal(t, "state", k.info(id).State, c.state)
				want := relay.FailedJob{ID: id, EventID: "a", Key: "a", Type: "t", Tenant: "x", Sink: "s", Failure: c.failure}
				if len(told) != 1 || told[0] != want {
					t.Errorf("told %+v, want %+v", told, want)
				}
				r.stop()
			})
		})
	}
}

func TestAJobOfUnknownOutcomeIsToldAsWhatItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.NoRepeat = true
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Unknown) }
		id := k.enqueue(job("a"))[0]
		var told []relay.FailedJob
		r := k.start(working(), func(c *relay.Config) {
			c.OnFailed = func(_ context.Context, j relay.FailedJob) { told = append(told, j) }
		})
		pass(time.Second)
		if len(told) != 1 || told[0].ID != id || told[0].Failure.Code != core.CodeUnknown || told[0].Attempts != 1 {
			t.Errorf("told %+v", told)
		}
		equal(t, "lines", k.log.with(slog.LevelError, "it is not known whether a job was delivered"), 1)
		equal(t, "lines that call it failed", k.log.with(slog.LevelError, "failed for good"), 0)
		r.stop()
	})
}

func TestALimitOfRedeliveriesThatCannotTellTheGuiltyIsRefused(t *testing.T) {
	t.Parallel()
	for limit, valid := range map[int]bool{0: true, 1: false, 2: true} {
		cfg := relay.Config{
			Queue: newLine(nil), Sinks: map[string]core.Sink{"s": core.SinkFunc(nil)},
			Workers: []relay.Worker{{Sink: "s"}}, MaxRedeliveries: limit,
		}
		err := cfg.Validate()
		if (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "MaxRedeliveries is 1: must be at least 2") {
			t.Errorf("%d: %v", limit, err)
		}
	}
}

func TestTheNextHolderKnowsWhyAKeyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1")
		k.start(k.holding).stopAfter(time.Second)
		r := k.start(k.holding)
		pass(time.Second)
		s := r.route()
		if b := s.Blocked; s.HeldKeys != 1 || b == nil || b.EventID != "a1" || b.Reason != errDown.Error() {
			t.Errorf("held %d, blocked %+v", s.HeldKeys, b)
		}
		r.stop()
	})
}

func (r *running) stopAfter(d time.Duration) {
	r.t.Helper()
	pass(d)
	r.stop()
}

func TestThatNoKeyWaitsIsSaidOnlyWhenItIsTrue(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = rejects("a1")
		k.append("a1")
		k.start(k.holding).stopAfter(time.Second)
		// The next holder finds a key that is held, and meets one that waits a while.
		k.sink.answers(func(l core.Lease, n int) core.Result {
			if l.Event.ID == "b1" && n == 1 {
				return refused("not today")
			}
			return core.Result{Outcome: core.Delivered}
		})
		r := k.start(k.holding)
		k.append("b1", "b2")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "b1", "b2")
		equal(t, "keys that wait", r.route().BlockedKeys, 1)
		equal(t, "lines that deny it", k.log.with(slog.LevelInfo, "no key waits any more"), 0)
		k.discard("a1")
		pass(time.Minute)
		equal(t, "keys that wait in the end", r.route().BlockedKeys, 0)
		equal(t, "lines in the end", k.log.with(slog.LevelInfo, "no key waits any more"), 1)
		r.stop()
	})
}

func TestThatTheSinkWorksIsNotSaidWhileItAsksToWait(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(_ context.Context, leases []core.Lease) {
			if leases[0].Event.ID == "slow" {
				time.Sleep(5 * time.Second) // it began before the sink asked
			}
		}
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "limit" && n == 1 {
				return core.Result{Outcome: core.Throttled, RetryAfter: time.Minute, Err: errDown}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.enqueue(job("slow"))
		r := k.start(working(func(w *relay.Worker) { w.BatchJobs = 1 }))
		pass(time.Second)
		k.enqueue(job("limit"))
		pass(20 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "slow")
		equal(t, "lines in the pause", k.log.with(slog.LevelInfo, "works again"), 0)
		pass(time.Minute)
		equalIDs(t, "delivered in the end", k.sink.got(), "slow", "limit")
		equal(t, "lines in the end", k.log.with(slog.LevelInfo, "works again"), 1)
		r.stop()
	})
}
