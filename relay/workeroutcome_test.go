package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

func TestADeliveredJobIsCompletedWithItsReceipt(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return core.Result{Outcome: core.Delivered, Receipt: "r-1"} }
		id := k.enqueue(job("a"))[0]
		k.start(working())
		pass(time.Second)
		got := k.info(id)
		equal(t, "state", got.State, core.JobCompleted)
		equal(t, "result", got.Result, "r-1")
		equal(t, "attempts", got.Attempts, 1)
		equal(t, "first attempt", k.sink.of("a")[0].lease.Attempt, 1)
	})
}

func TestARefusedJobIsTriedAgainLaterEachTimeAndThenFails(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(_ core.Lease, n int) core.Result { return refused(fmt.Sprintf("no %d", n)) }
		id := k.enqueue(job("a", tries(4)))[0]
		var failed []relay.FailedJob
		k.start(working(), func(c *relay.Config) {
			c.OnFailed = func(_ context.Context, j relay.FailedJob) { failed = append(failed, j) }
		})
		pass(time.Hour)
		got := k.sink.of("a")
		equal(t, "attempts", len(got), 4)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			between(t, "a wait", got[i+1].at.Sub(got[i].at), want*8/10, want*12/10+100*time.Millisecond)
			equal(t, "number", got[i+1].lease.Attempt, i+2)
		}
		info := k.info(id)
		equal(t, "state", info.State, core.JobFailed)
		equal(t, "failure", info.Failure, core.Failure{Code: core.CodeExhausted, Reason: "no 4"})
		if len(failed) != 1 || failed[0].ID != id || failed[0].Attempts != 4 || failed[0].Failure != info.Failure || failed[0].Sink != "s" {
			t.Errorf("told: %+v", failed)
		}
		equal(t, "lines", k.log.with(slog.LevelError, "a job failed for good"), 1)
	})
}

func TestBackoffIsCappedAndByType(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return refused("no") }
		quick := job("quick")
		quick.Type = "q"
		k.enqueue(job("plain"), quick)
		k.start(working(func(w *relay.Worker) {
			w.Backoff = relay.Backoff{Initial: time.Minute, Max: 3 * time.Minute}
			w.TypeBackoff = map[string]relay.Backoff{"q": {Initial: time.Second, Max: time.Second}}
		}))
		pass(24 * time.Hour)
		for id, want := range map[string][]time.Duration{"plain": minutes(1, 2, 3, 3, 3, 3, 3, 3, 3), "quick": nil} {
			got := k.sink.of(id)
			equal(t, "attempts", len(got), core.DefaultMaxAttempts)
			for i := range len(got) - 1 {
				low := time.Second
				if want != nil {
					low = want[i]
				}
				between(t, id, got[i+1].at.Sub(got[i].at), low*8/10, low*12/10+100*time.Millisecond)
			}
		}
	})
}

func TestARejectedJobFailsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Rejected) }
		id := k.enqueue(job("a"))[0]
		k.start(working())
		pass(time.Hour)
		equal(t, "attempts", len(k.sink.of("a")), 1)
		equal(t, "failure", k.info(id).Failure.Code, core.CodeRejected)
		equal(t, "state", k.info(id).State, core.JobFailed)
	})
}

func TestAJobOfUnknownOutcomeIsSentAgainUncounted(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(_ core.Lease, n int) core.Result {
			if n < 6 {
				return outcome(core.Unknown)
			}
			return core.Result{Outcome: core.Delivered}
		}
		id := k.enqueue(job("a", tries(2)))[0]
		k.start(working())
		pass(time.Hour)
		got := k.sink.of("a")
		equal(t, "calls", len(got), 6)
		equal(t, "number of the last", got[5].lease.Attempt, 1)
		equal(t, "redelivered at first", got[0].lease.Redelivered, false)
		equal(t, "redelivered", got[1].lease.Redelivered, true)
		equal(t, "state", k.info(id).State, core.JobCompleted)
	})
}

func minutes(all ...float64) (waits []time.Duration) {
	for _, m := range all {
		waits = append(waits, time.Duration(m*float64(time.Minute)))
	}
	return waits
}

func TestAJobWhoseOutcomeIsUnknownWhileOthersPassIsCountedFromTheThirdTimeOn(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.ID == "odd" {
				return outcome(core.Unknown)
			}
			return core.Result{Outcome: core.Delivered}
		}
		id := k.enqueue(job("odd", tries(3)))[0]
		k.start(working())
		for range 600 {
			k.enqueue(jobs(fmt.Sprint(time.Now().UnixNano(), "-"), 1)...)
			pass(time.Second)
		}
		equal(t, "state", k.info(id).State, core.JobFailed)
		equal(t, "code", k.info(id).Failure.Code, core.CodeExhausted)
		equal(t, "attempts", k.info(id).Attempts, 3)
		// Twice uncounted, and each time that no other had passed meanwhile.
		between(t, "calls", time.Duration(len(k.sink.of("odd"))), 3+2, 3+2+5)
	})
}

func TestASinkThatMustNotRepeatEndsAsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.NoRepeat = true
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.ID == "panic" {
				panic("boom")
			}
			return outcome(core.Unknown)
		}
		ids := k.enqueue(job("a"), job("panic"))
		k.start(working(func(w *relay.Worker) { w.BatchJobs = 1 }))
		pass(time.Hour)
		equal(t, "calls", k.sink.callCount(), 2)
		for _, id := range ids {
			equal(t, "state", k.info(id).State, core.JobUnknown)
			equal(t, "code", k.info(id).Failure.Code, core.CodeUnknown)
		}
	})
}

func TestAPanicOfTheSinkCountsAsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.ID == "j3" {
				panic("boom")
			}
			return core.Result{Outcome: core.Delivered}
		}
		ids := k.enqueue(jobs("j", 20, tries(3))...)
		k.start(working())
		pass(time.Hour)
		k.counts("after", 0, 0, 19, 1)
		equal(t, "failure", k.info(ids[2]).Failure, core.Failure{Code: core.CodeExhausted, Reason: "the sink panicked: boom"})
		equal(t, "counted", k.info(ids[2]).Attempts, 3)
		equal(t, "counted of another", k.info(ids[0]).Attempts, 1)
	})
}

func TestAWrongNumberOfResultsIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		calls := 0
		k.sink.answer = func(rs []core.Result) []core.Result {
			if calls++; calls == 1 {
				return rs[:0]
			}
			return rs
		}
		id := k.enqueue(job("a"))[0]
		k.start(working())
		pass(time.Minute)
		equal(t, "calls", k.sink.callCount(), 2)
		equal(t, "second is redelivered", k.sink.of("a")[1].lease.Redelivered, true)
		equal(t, "attempts", k.info(id).Attempts, 1)
		equal(t, "lines", k.log.with(slog.LevelError, "broke its contract"), 1)
	})
}

func TestAForgottenAnswerIsAnotherTry(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a" && n < 3 {
				return core.Result{}
			}
			return core.Result{Outcome: core.Delivered}
		}
		ids := k.enqueue(job("a", tries(1)), job("b"), job("c"))
		k.start(working())
		pass(time.Minute)
		k.counts("after", 0, 0, 3, 0)
		equal(t, "attempts", k.info(ids[0]).Attempts, 1)
	})
}

func TestAnOutageBurnsNoAttempt(t *testing.T) {
	for name, lasts := range map[string]time.Duration{
		"an hour": time.Hour,
		"20 minutes, 5 more than backoff endures": 20 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				began := time.Now()
				k.sink.reply = func(core.Lease, int) core.Result {
					if time.Since(began) < lasts {
						return outcome(core.Unavailable)
					}
					return core.Result{Outcome: core.Delivered}
				}
				ids := k.enqueue(jobs("j", 200, tries(5))...)
				r := k.start(working())
				pass(lasts / 2)
				s := r.worker()
				if s.SinkError != "scripted: unavailable" || s.RetryAt.IsZero() && s.Calls == 0 {
					t.Errorf("status in the outage: %+v", s)
				}
				if calls := k.sink.callCount(); calls > int(lasts/2/(20*time.Second))+20 {
					t.Errorf("%d calls in the outage", calls)
				}
				pass(lasts/2 - time.Second)
				k.counts("before the end", 200, 0, 0, 0)
				pass(2 * time.Minute)
				k.counts("after", 0, 0, 200, 0)
				for _, id := range ids {
					equal(t, "attempts", k.info(id).Attempts, 1)
				}
				equal(t, "lines of the outage", k.log.with(slog.LevelWarn, "the sink takes no jobs"), 1)
				equal(t, "lines of its end", k.log.with(slog.LevelInfo, "the sink works again"), 1)
				r.stop()
			})
		})
	}
}

func TestAJobThatAloneMakesTheSinkUnavailableFails(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.ID == "bad" {
				return outcome(core.Unavailable)
			}
			return core.Result{Outcome: core.Delivered}
		}
		id := k.enqueue(job("bad", tries(3)))[0]
		k.start(working())
		for i := range 300 {
			k.enqueue(job(fmt.Sprint("j", i)))
			pass(time.Second)
		}
		pass(time.Hour)
		k.counts("after", 0, 0, 300, 1)
		equal(t, "code", k.info(id).Failure.Code, core.CodeExhausted)
	})
}

func TestRetryAfterPausesTheSinkForTheFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		other := newScript(t)
		k.start(working(), func(c *relay.Config) { c.Sinks = map[string]core.Sink{"s": other} })
		k.enqueue(job("first"))
		pass(time.Second) // from now on the other one is first
		began := time.Now()
		throttled := func(core.Lease, int) core.Result {
			if time.Since(began) < time.Second {
				return core.Result{Outcome: core.Throttled, RetryAfter: 5 * time.Minute, Err: errors.New("slow down")}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.sink.reply = throttled
		other.answers(throttled)
		r := k.start(working())
		k.enqueue(jobs("j", 100, tries(1))...)
		pass(2 * time.Second)
		calls := k.sink.callCount() + other.callCount()
		between(t, "jobs that were throttled", time.Duration(calls), 2, 12)
		equal(t, "paused", r.worker().Paused, "slow down")
		between(t, "the pause", r.worker().PausedUntil.Sub(began), 5*time.Minute, 5*time.Minute+time.Second)
		k.enqueue(jobs("k", 100)...)
		pass(4*time.Minute + 50*time.Second)
		equal(t, "calls in the pause", k.sink.callCount()+other.callCount(), calls)
		pass(20 * time.Second)
		k.counts("after", 0, 0, 201, 0)
	})
}

func TestAnUndecodableJobIsSetAsideOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		ids := k.enqueue(jobs("j", 3)...)
		bad := &spoiling{Queue: k.store, errs: map[string]error{
			ids[0]: core.MarkRejected(errors.New("no event")),
			ids[1]: errors.New("no key to open it with"),
		}}
		k.start(working(), through(bad))
		pass(10 * time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "j3")
		equal(t, "state of what is no event", k.info(ids[0]).State, core.JobFailed)
		equal(t, "code", k.info(ids[0]).Failure, core.Failure{Code: core.CodeUndecodable, Reason: "no event"})
		equal(t, "state of what may be opened later", k.info(ids[1]).State, core.JobReady)
		equal(t, "attempts of it", k.info(ids[1]).Attempts, 0)
		bad.heal()
		pass(11 * time.Minute)
		k.counts("after", 0, 0, 2, 1)
	})
}

// spoiling is a queue of whose jobs some can't be decoded.
type spoiling struct {
	core.Queue
	errs   map[string]error
	healed atomic.Bool
}

func (q *spoiling) heal() { q.healed.Store(true) }

func (q *spoiling) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	got, err := q.Queue.Claim(ctx, req)
	for _, c := range got {
		if !q.healed.Load() {
			c.Err = q.errs[c.ID]
		}
	}
	return got, err
}

func TestAJobForASinkThatNoWorkerHasStaysReady(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		stray := job("stray")
		stray.Sink = "nobody"
		id := k.enqueue(stray, job("a"))[0]
		q := newLine(k.store)
		k.start(working(), through(q))
		pass(time.Second)
		claims := q.count("claim")
		pass(time.Hour)
		equal(t, "claims while only it is there", q.count("claim"), claims)
		equal(t, "state", k.info(id).State, core.JobReady)
		at := slices.IndexFunc(k.stats().Sinks, func(s core.SinkStats) bool { return s.Sink == "nobody" })
		equal(t, "ready in the sink's stats", k.stats().Sinks[at].Ready, int64(1))
	})
}

func TestOldJobsThatAlwaysFailLetFreshOnesPass(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			if l.Event.Type == "bad" {
				return refused("never")
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.sink.before = slow(5 * time.Millisecond)
		k.enqueue(jobs("old", 500, func(j *core.Job) { j.Type, j.MaxAttempts = "bad", 1000 })...)
		k.start(working(func(w *relay.Worker) { w.BatchJobs = 1 }), through(unwatched{k.store}))
		pass(10 * time.Minute)
		k.enqueue(jobs("fresh", 20)...)
		began := time.Now()
		for time.Since(began) < 2*time.Second && len(k.sink.got()) < 20 {
			pass(50 * time.Millisecond)
		}
		between(t, "the fresh ones took", time.Since(began), 0, relay.DefaultJobPollAlone+100*time.Millisecond)
		equal(t, "fresh ones delivered", len(k.sink.got()), 20)
	})
}
