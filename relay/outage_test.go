package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

func TestAnUnavailableSinkCostsNoAttemptAndTwoLines(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var up atomic.Bool
		k.sink.reply = func(core.Lease, int) core.Result {
			if up.Load() {
				return core.Result{Outcome: core.Delivered}
			}
			return outcome(core.Unavailable)
		}
		for key := range 26 {
			k.append(numbered(string(rune('a'+key)), 4)...)
		}
		r := k.start()
		pass(time.Hour)
		equal(t, "delivered", len(k.sink.got()), 0)
		s := r.route()
		equal(t, "state", s.State, relay.Waiting)
		equal(t, "reason", s.SinkError, "scripted: unavailable")
		equal(t, "blocked keys", s.BlockedKeys, 0)
		between(t, "time until the next try", time.Until(s.RetryAt), 0, 30*time.Second)
		calls := k.sink.callCount()
		between(t, "calls in an hour", time.Duration(calls), 120, 170)
		for _, a := range k.sink.all() {
			if a.call > relay.DefaultLanes+3 && a.with != 1 {
				t.Fatalf("call %d of an outage has %d events", a.call, a.with)
			}
		}
		up.Store(true)
		pass(31 * time.Second)
		equal(t, "delivered when it is back", len(k.sink.got()), 104)
		for _, a := range k.sink.all() {
			if a.lease.Attempt != 1 || a.lease.Redelivered {
				t.Fatalf("attempt %d, redelivered %v of %s", a.lease.Attempt, a.lease.Redelivered, a.lease.Event.ID)
			}
		}
		equal(t, "state", r.route().State, relay.Holding)
		equal(t, "reason", r.route().SinkError, "")
		equal(t, "lines when it began", k.log.with(slog.LevelWarn, "the sink takes nothing"), 1)
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "the sink works again"), 1)
		equal(t, "warnings", k.log.all(slog.LevelWarn), 1)
		r.stop()
	})
}

func TestInAnOutageOneCallAtATimeIsTried(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var atOnce, most atomic.Int32
		down := time.Now().Add(time.Minute)
		k.sink.caps.MaxBatch = 2
		k.sink.before = func(context.Context, []core.Lease) {
			if n := atOnce.Add(1); time.Until(down) < 50*time.Second && time.Until(down) > 0 && n > most.Load() {
				most.Store(n)
			}
			time.Sleep(100 * time.Millisecond)
			atOnce.Add(-1)
		}
		k.sink.reply = func(core.Lease, int) core.Result {
			if time.Now().Before(down) {
				return outcome(core.Unavailable)
			}
			return core.Result{Outcome: core.Delivered}
		}
		for key := range 26 {
			k.append(string(rune('a'+key)) + "1")
		}
		r := k.start()
		pass(2 * time.Minute)
		equal(t, "calls at once", most.Load(), 1)
		equal(t, "delivered", len(k.sink.got()), 26)
		r.stop()
	})
}

func TestAnEventThatIsUnavailableWhileOthersPassIsRefused(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone in its call", true: "and takes its call down"}[whole], func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				poisoned := func(ls []core.Lease) bool {
					return slices.ContainsFunc(ls, func(l core.Lease) bool { return l.Event.ID == "p1" })
				}
				var broken atomic.Bool
				k.sink.caps.MaxBatch = 8
				k.sink.before = func(_ context.Context, ls []core.Lease) { broken.Store(whole && poisoned(ls)) }
				k.sink.reply = func(l core.Lease, _ int) core.Result {
					if broken.Load() || l.Event.ID == "p1" {
						return outcome(core.Unavailable)
					}
					return core.Result{Outcome: core.Delivered}
				}
				k.append("a1", "b1", "p1", "p2", "c1", "d1")
				r := k.start(func(c *relay.Config) { c.Routes[0].Lanes = 1 })
				for i := range 600 {
					pass(time.Second)
					k.append("x" + string(rune('0'+i%10)) + string(rune('0'+i/10%10)) + string(rune('0'+i/100)))
				}
				pass(time.Minute)
				equal(t, "delivered", len(k.sink.got()), 604)
				equal(t, "the key waits", slices.Contains(k.sink.got(), "p2"), false)
				s := r.route()
				equal(t, "state", s.State, relay.Holding)
				if s.Blocked == nil || s.Blocked.EventID != "p1" || s.Blocked.Attempts < 1 {
					t.Errorf("blocked: %+v", s.Blocked)
				}
				together := 0
				for _, a := range k.sink.of("p1") {
					if a.with > 1 {
						together++
					}
				}
				// Once it is suspected it goes alone. Where it takes others down it
				// must first be found.
				most := 1
				if whole {
					most = 5
				}
				if together > most {
					t.Errorf("sent with others in %d calls, want at most %d", together, most)
				}
				r.stop()
			})
		})
	}
}

func TestAThrottlingSinkIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if n == 1 {
				return core.Result{Outcome: core.Throttled, Err: errors.New("slow down"), RetryAfter: 7 * time.Second}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1")
		r := k.start()
		pass(time.Second)
		k.append("b1")
		pass(5 * time.Second)
		equal(t, "calls", k.sink.callCount(), 1)
		equal(t, "state", r.route().State, relay.Waiting)
		equal(t, "reason", r.route().SinkError, "slow down")
		pass(20 * time.Second)
		tries := k.sink.of("a1")
		equal(t, "wait", tries[1].at.Sub(tries[0].at), 7*time.Second)
		equal(t, "attempt", tries[1].lease.Attempt, 1)
		equal(t, "delivered", len(k.sink.got()), 2)
		pass(2 * time.Minute)
		k.sink.answers(nil)
		k.append("c1")
		pass(time.Second)
		equal(t, "warnings", k.log.all(slog.LevelWarn), 1)
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "the sink works again"), 1)
		r.stop()
	})
}

func TestAnEventOfUnknownOutcomeIsSentAgainAndMarked(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a1" && n == 1 {
				return outcome(core.Unknown)
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "a2", "b1")
		r := k.start()
		pass(500 * time.Millisecond)
		equalIDs(t, "delivered meanwhile", k.sink.got(), "b1")
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a1", "a2")
		again := k.sink.of("a1")[1].lease
		equal(t, "redelivered", again.Redelivered, true)
		equal(t, "attempt", again.Attempt, 1)
		equal(t, "redelivered of what was not sent", k.sink.of("a2")[1].lease.Redelivered, false)
		r.stop()
	})
}

func TestAnEventThatAloneEndsUnknownIsRefusedTheThirdTime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "p1" {
				return outcome(core.Unknown)
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("p1", "a1")
		r := k.start()
		for i := range 100 {
			pass(100 * time.Millisecond)
			k.append("x" + string(rune('0'+i%10)) + string(rune('0'+i/10)))
		}
		pass(time.Minute)
		tries := k.sink.of("p1")
		for i, want := range []int{1, 1, 1, 2} {
			equal(t, "attempt", tries[i].lease.Attempt, want)
			equal(t, "redelivered", tries[i].lease.Redelivered, i > 0)
		}
		r.stop()
	})
}

func TestAnEventIsNotRefusedWhileNoneGetsThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var up atomic.Bool
		k.sink.reply = func(core.Lease, int) core.Result {
			if up.Load() {
				return core.Result{Outcome: core.Delivered}
			}
			return outcome(core.Unknown)
		}
		k.append("a1", "b1", "c1")
		r := k.start()
		pass(time.Hour)
		up.Store(true)
		// They are sent as soon as after an outage, not after the long waits of
		// refused events.
		pass(31 * time.Second)
		equal(t, "delivered", len(k.sink.got()), 3)
		for _, a := range k.sink.all() {
			equal(t, "attempt", a.lease.Attempt, 1)
		}
		r.stop()
	})
}

func TestWhatWasNotAttemptedIsSentAtOnceButNotInATightLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "b1" && n == 1 {
				return core.Result{}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "b1")
		r := k.start()
		settle()
		equalIDs(t, "delivered at once", k.sink.got(), "a1", "b1")
		pass(time.Second)

		k.sink.answers(func(core.Lease, int) core.Result { return core.Result{} })
		calls := k.sink.callCount()
		k.append("a2", "b2")
		pass(10 * time.Second)
		between(t, "calls of which nothing is attempted", time.Duration(k.sink.callCount()-calls), 3, 8)
		equal(t, "attempt", k.sink.of("a2")[1].lease.Attempt, 1)
		r.stop()
	})
}

func TestAnEventThatIsNeverAttemptedDoesNotSpinBesideOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.AggregateID == "p" {
				return core.Result{}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("p1")
		k.append(numbered("a", 100)...)
		r := k.start()
		pass(time.Minute)
		between(t, "tries in a minute", time.Duration(len(k.sink.of("p1"))), 5, 12)
		equal(t, "delivered", len(k.sink.got()), 100)
		r.stop()
	})
}

func TestABrokenSinkLeavesItsEventsUnknown(t *testing.T) {
	for name, answer := range map[string]func([]core.Result) []core.Result{
		"panic":            func([]core.Result) []core.Result { panic("boom") },
		"too few results":  func(r []core.Result) []core.Result { return r[1:] },
		"too many results": func(r []core.Result) []core.Result { return append(r, r[0]) },
		"no such outcome": func(r []core.Result) []core.Result {
			for i := range r {
				r[i].Outcome = 77
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				broken := true
				k.sink.answer = func(r []core.Result) []core.Result {
					if broken {
						broken = false
						return answer(r)
					}
					return r
				}
				k.append("a1", "b1")
				r := k.start()
				pass(time.Minute)
				for _, id := range []string{"a1", "b1"} {
					tries := k.sink.of(id)
					equal(t, "tries", len(tries), 2)
					equal(t, "redelivered", tries[1].lease.Redelivered, true)
				}
				equal(t, "events beyond the saved position", k.unsettled(), 0)
				if name != "no such outcome" {
					equal(t, "lines about it", k.log.with(slog.LevelError, "broke its contract"), 1)
				}
				r.stop()
			})
		})
	}
}

func TestAnEventAtWhichTheSinkPanicsHoldsItsKeyAndNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			for _, l := range ls {
				if l.Event.ID == "p1" {
					panic("can't render this")
				}
			}
		}
		k.append("p1", "p2")
		for key := range 10 {
			k.append(numbered(string(rune('a'+key)), 2)...)
		}
		r := k.start()
		pass(time.Minute)
		equal(t, "delivered", len(k.sink.got()), 20)
		s := r.route()
		if s.Blocked == nil || s.Blocked.EventID != "p1" {
			t.Errorf("blocked: %+v", s.Blocked)
		}
		equal(t, "the panic in status", s.Blocked.Reason, "the sink panicked: can't render this")
		r.stop()
	})
}

func TestEachKeyThatWaitsIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "b1", "c1")
		k.sink.answers(func(l core.Lease, _ int) core.Result { return refused("no topic " + l.Event.ID) })
		r := k.start()
		pass(10 * time.Second)
		equal(t, "lines at first", k.log.with(slog.LevelWarn, "its key waits"), 1)
		pass(20 * time.Minute)
		equal(t, "lines in the end", k.log.with(slog.LevelWarn, "its key waits"), 3)
		r.stop()
	})
}

func TestAnAnswerAboutOneEventEndsNoOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1")
		k.sink.answers(func(l core.Lease, _ int) core.Result {
			if l.Event.AggregateID == "a" {
				return refused("known without asking") // as a sink may from what it remembers
			}
			return outcome(core.Unavailable)
		})
		r := k.start()
		pass(time.Second)
		k.append("b1")
		pass(20 * time.Minute)
		equal(t, "lines that tell the end", k.log.with(slog.LevelInfo, "the sink works again"), 0)
		equal(t, "lines that tell the outage", k.log.with(slog.LevelWarn, "the sink takes nothing"), 1)
		r.stop()
	})
}
