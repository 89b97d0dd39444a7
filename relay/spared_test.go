package relay_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// sparing is an answer that asks to spare a tenant or a domain.
func sparing(scope core.PauseScope, name string, after time.Duration) core.Result {
	return core.Result{
		Outcome: core.Throttled, RetryAfter: after, Err: errors.New("too many to " + name),
		Throttles: core.PauseTarget{Scope: scope, Name: name},
	}
}

func TestASinkMayThrottleATenantOrADomainAlone(t *testing.T) {
	for _, target := range []core.PauseTarget{{Scope: core.PauseTenant, Name: "x"}, {Scope: core.PauseDomain, Name: "x.example"}} {
		t.Run(string(target.Scope), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				began := time.Now()
				k.sink.reply = func(l core.Lease, _ int) core.Result {
					if l.Event.Tenant == "x" && time.Since(began) < time.Minute {
						return sparing(target.Scope, target.Name, 5*time.Minute)
					}
					return core.Result{Outcome: core.Delivered}
				}
				ids := k.enqueue(jobs("x", 20, tenant("x"), tries(1))...)
				k.enqueue(jobs("y", 20, tenant("y"))...)
				r := k.start(working())
				pass(2 * time.Second)
				k.counts("while one part is spared", 20, 0, 20, 0)
				equal(t, "the sink is paused", r.worker().Paused, "")
				equal(t, "the sink fails", r.worker().SinkError, "")
				pauses, err := k.store.Pauses(t.Context())
				if err != nil || len(pauses) != 1 || pauses[0].PauseTarget != target || pauses[0].Reason != "too many to "+target.Name || pauses[0].By != "" {
					t.Fatalf("pauses: %+v, %v", pauses, err)
				}
				between(t, "the pause", pauses[0].Until.Sub(began), 5*time.Minute, 5*time.Minute+2*time.Second)
				info := k.info(ids[0])
				equal(t, "attempts", info.Attempts, 0)
				k.enqueue(jobs("z", 10, tenant("z"))...)
				pass(time.Second)
				k.counts("others go on", 20, 0, 30, 0)
				pass(4*time.Minute + 50*time.Second)
				k.counts("as long as the sink asked", 20, 0, 30, 0)
				pass(20 * time.Second)
				k.counts("after", 0, 0, 50, 0)
			})
		})
	}
}

func TestFewPausesOfPartsAreWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		writes := 0
		k.faults.onEach(func(op string) error {
			if op == memory.OpPause {
				writes++
			}
			return nil
		})
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if n == 1 {
				return sparing(core.PauseDomain, l.Event.Tenant, time.Minute)
			}
			return core.Result{Outcome: core.Delivered}
		}
		for i := range 30 {
			k.enqueue(jobs("j"+string(rune('A'+i)), 3, tenant("d"+string(rune('A'+i))))...)
		}
		k.start(working(func(w *relay.Worker) { w.Lanes, w.BatchJobs = 1, 90 }))
		pass(500 * time.Millisecond)
		if writes == 0 || writes > 10*k.sink.callCount() {
			t.Errorf("%d pauses were written in %d calls", writes, k.sink.callCount())
		}
		pass(2 * time.Minute)
		k.counts("after", 0, 0, 90, 0)
	})
}

func TestWhereAPauseCannotBeWrittenTheJobsWaitAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a" && n == 1 {
				return sparing(core.PauseTenant, "x", time.Minute)
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.faults.set(errDown, memory.OpPause)
		k.enqueue(job("a", tenant("x")), job("b", tenant("y")))
		k.start(working())
		pass(55 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "b")
		pass(10 * time.Second)
		equalIDs(t, "delivered in the end", k.sink.got(), "b", "a")
	})
}

func TestARouteLetsTheKeyWaitWhosePartIsThrottled(t *testing.T) {
	for name, queue := range map[string]bool{"parked": true, "in memory": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.reply = func(l core.Lease, n int) core.Result {
					if l.Event.ID == "a1" && n <= 2 {
						return sparing(core.PauseTenant, "x", time.Minute)
					}
					return core.Result{Outcome: core.Delivered}
				}
				k.append("a1", "a2", "b1")
				r := k.start(func(c *relay.Config) {
					c.Routes[0].MaxAttempts = 1
					if queue {
						c.Queue = k.store
					}
				})
				pass(time.Second)
				equalIDs(t, "delivered", k.sink.got(), "b1")
				equal(t, "state", r.route().State, relay.Holding)
				k.append("b2")
				pass(50 * time.Second)
				equalIDs(t, "delivered as others go on", k.sink.got(), "b1", "b2")
				equal(t, "tries", len(k.sink.of("a1")), 1)
				pass(75 * time.Second)
				equalIDs(t, "delivered in the end", k.sink.got(), "b1", "b2", "a1", "a2")
				tries := k.sink.of("a1")
				equal(t, "tries in the end", len(tries), 3)
				for _, try := range tries {
					equal(t, "no attempt is counted", try.lease.Attempt, 1)
				}
				r.stop()
			})
		})
	}
}

func TestWhatIsRefusedForATimeIsNotTriedEarlier(t *testing.T) {
	for name, edit := range map[string]func(*kit, *relay.Config){
		"a job":              func(_ *kit, c *relay.Config) { working()(c) },
		"a parked event":     func(k *kit, c *relay.Config) { k.parking(c) },
		"an event in memory": func(*kit, *relay.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.reply = func(_ core.Lease, n int) core.Result {
					if n <= 2 {
						return core.Result{Outcome: core.Refused, Err: errors.New("greylisted"), RetryAfter: 5 * time.Minute}
					}
					return core.Result{Outcome: core.Delivered}
				}
				k.append("a1")
				k.enqueue(job("a1"))
				k.start(func(c *relay.Config) { edit(k, c) })
				pass(11 * time.Minute)
				tries := slices.Clone(k.sink.of("a1"))
				equal(t, "tries", len(tries), 3)
				for i := 1; i < len(tries); i++ {
					between(t, "wait", tries[i].at.Sub(tries[i-1].at), 5*time.Minute, 5*time.Minute+5*time.Second)
					equal(t, "attempt", tries[i].lease.Attempt, i+1)
				}
			})
		})
	}
}
