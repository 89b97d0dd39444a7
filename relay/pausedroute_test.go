package relay_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

var pausedSink = core.PauseTarget{Scope: core.PauseSink, Name: "s"}

// pause pauses the sink "s" as an operator does.
func (k *kit) pause(d time.Duration) {
	k.t.Helper()
	if err := k.store.PauseBy(k.t.Context(), core.Pause{PauseTarget: pausedSink, For: d, Reason: "they move house"}, operator); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) resume() {
	k.t.Helper()
	if err := k.store.ResumeBy(k.t.Context(), pausedSink, operator); err != nil {
		k.t.Fatal(err)
	}
}

// silent is a queue that can't tell of changes.
type silent struct{ core.Queue }

func (silent) Watch(context.Context, func(core.Wake)) error { return core.ErrNoWatch }

// soon is within which time a pause and its end are seen.
const soon = 1100 * time.Millisecond

func TestAPausedSinkStopsItsRoutesAndTheirParkedJobs(t *testing.T) {
	for name, queue := range map[string]func(core.Queue) core.Queue{
		"the store tells":   func(q core.Queue) core.Queue { return q },
		"the store is mute": func(q core.Queue) core.Queue { return silent{q} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				other := newScript(t)
				k.sink.reply = refuses(3, "a1")
				r := k.start(func(c *relay.Config) {
					c.Queue = queue(k.store)
					c.Sinks["o"] = other
					c.Routes = append(c.Routes, relay.Route{Name: "other", Sink: "o"})
				})
				k.append("a1", "a2", "b1")
				pass(100 * time.Millisecond)
				equalIDs(t, "delivered before", k.sink.got(), "b1")
				k.pause(0)
				pass(soon)
				calls, claims, fence := k.sink.callCount(), k.faults.count(memory.OpClaimJobs), r.route().Fence
				k.append("a3", "b2")
				pass(time.Hour)
				equal(t, "calls in the pause", k.sink.callCount()-calls, 0)
				equal(t, "claims in the pause", k.faults.count(memory.OpClaimJobs)-claims, 0)
				equal(t, "delivered to another sink", len(other.got()), 5)
				equal(t, "events beyond the saved position", k.unsettled(), 1) // b2: the others are parked
				s := r.route()
				equal(t, "state", s.State, relay.Paused)
				equal(t, "paused in status", s.Paused, "they move house")
				equal(t, "paused by", s.PausedBy, "ada")
				equal(t, "fence: the cursor was kept", s.Fence, fence)
				equal(t, "state of another route", r.Status().Routes[1].State, relay.Holding)
				e, err := k.store.Explain(t.Context(), "b2")
				if err != nil || len(e.Causes) != 2 || e.Causes[1].Code != core.CausePaused {
					t.Errorf("explained: %+v, %v", e, err)
				}
				equal(t, "lines when it began", k.log.with(slog.LevelWarn, "is paused"), 1)
				k.resume()
				pass(soon)
				equalIDs(t, "delivered within a second", k.sink.got()[:2], "b1", "b2")
				pass(time.Minute)
				equal(t, "delivered", len(k.sink.got()), 5)
				equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "no longer paused"), 1)
				equal(t, "paused in status at the end", r.route().Paused, "")
				equal(t, "state at the end", r.route().State, relay.Holding)
				r.stop()
			})
		})
	}
}

func TestAPauseStopsARouteThatBeginsAndEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.pause(time.Minute)
		k.append("a1")
		r := k.start(k.parking)
		pass(time.Minute - time.Second)
		equal(t, "calls in the pause", k.sink.callCount(), 0)
		between(t, "the pause ends in", time.Until(r.route().PausedUntil), time.Second, time.Second)
		pass(time.Second + soon)
		equalIDs(t, "delivered", k.sink.got(), "a1")
		r.stop()
		equal(t, "lines", k.log.with(slog.LevelWarn, "is paused"), 1)
	})
}

func TestARouteBeginsOnlyWhenItIsKnownWhatIsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.pause(0)
		k.faults.set(errDown, memory.OpPauses)
		k.append("a1")
		r := k.start(k.parking)
		pass(time.Minute)
		equal(t, "calls", k.sink.callCount(), 0)
		k.faults.set(nil, memory.OpPauses)
		pass(time.Minute)
		equal(t, "calls in the pause", k.sink.callCount(), 0)
		k.faults.set(errDown, memory.OpPauses) // what was known goes on
		pass(time.Minute)
		equal(t, "calls in the pause that can't be asked for", k.sink.callCount(), 0)
		k.faults.set(nil, memory.OpPauses)
		k.resume()
		pass(11 * time.Second) // the backoff of the store
		equalIDs(t, "delivered", k.sink.got(), "a1")
		r.stop()
	})
}

func TestAPausedRouteDrainsAndIsPausedForTheNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r, standby := k.start(k.parking), k.start(k.parking)
		pass(time.Second)
		k.pause(0)
		pass(soon)
		k.append("a1")
		began := time.Now()
		r.stop()
		between(t, "stopping took", time.Since(began), 0, time.Second)
		pass(lease)
		equal(t, "calls", k.sink.callCount(), 0)
		equal(t, "state of the next holder", standby.route().State, relay.Paused)
		k.resume()
		pass(soon)
		equalIDs(t, "delivered", k.sink.got(), "a1")
		standby.stop()
	})
}

func TestPausesOfTenantsAndOfOthersStopNoRoute(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		for _, target := range []core.PauseTarget{{Scope: core.PauseTenant, Name: "acme"}, {Scope: core.PauseSink, Name: "o"}} {
			if err := k.store.PauseBy(t.Context(), core.Pause{PauseTarget: target}, operator); err != nil {
				t.Fatal(err)
			}
		}
		k.sink.reply = refuses(1, "a1")
		e, f := event("a1"), event("b1")
		e.Tenant, f.Tenant = "acme", "acme"
		k.appendEvents(e, f)
		r := k.start(k.parking)
		pass(10 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a1")
		r.stop()
	})
}

func TestASinkThatIsDownOrThrottlesPausesNoOther(t *testing.T) {
	for _, o := range []core.Outcome{core.Unavailable, core.Throttled} {
		t.Run(o.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.reply = func(core.Lease, int) core.Result {
					return core.Result{Outcome: o, RetryAfter: time.Hour, Err: errDown}
				}
				k.append("a1")
				r := k.start(k.parking)
				pass(10 * time.Minute)
				pauses, err := k.store.Pauses(t.Context())
				if err != nil || len(pauses) > 0 {
					t.Errorf("pauses %v, %v", pauses, err)
				}
				equal(t, "paused", r.route().Paused, "")
				r.stop()
			})
		})
	}
}
