package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// die leaves n terms behind that ended without progress; each noted the event
// with the given index, if that isn't negative.
func (k *kit) die(n, suspect int) {
	k.t.Helper()
	for i := range n {
		c, err := k.store.Acquire(k.t.Context(), core.AcquireRequest{Name: "r", Owner: fmt.Sprint("dead", i)})
		if err != nil {
			k.t.Fatal(err)
		}
		if suspect >= 0 {
			batch, err := c.Read(k.t.Context(), core.ReadLimit{})
			if err != nil {
				k.t.Fatal(err)
			}
			if err := c.Suspect(k.t.Context(), batch.Entries[suspect].Mark); err != nil {
				k.t.Fatal(err)
			}
		}
		pass(lease) // it was killed: no release
	}
}

func TestAfterTermsWithoutProgressEventsAreNotedAndSentSingly(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		k.faults.onEach(func(op string) error {
			if op == memory.OpSuspect || op == memory.OpSave {
				note(op)
			}
			return nil
		})
		k.sink.before = func(_ context.Context, ls []core.Lease) { note(fmt.Sprint("send ", len(ls))) }
		k.append("a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1")
		k.die(2, -1)
		r := k.start(func(c *relay.Config) { c.Routes[0].BatchEvents = 4 })
		pass(time.Minute)
		// The first alone, noted before and saved after; then twice as many.
		equalIDs(t, "what was done", order[:6], "suspect", "send 1", "save", "send 2", "save", "send 4")
		equal(t, "notes", k.faults.count(memory.OpSuspect), 1)
		equal(t, "delivered", len(k.sink.got()), 8)
		equal(t, "warnings", k.log.with(slog.LevelWarn, "one by one"), 1)
		r.stop()
	})
}

func TestTwoTermsWithoutProgressAreNotEnough(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "b1")
		k.die(1, -1)
		r := k.start()
		pass(time.Minute)
		equal(t, "notes", k.faults.count(memory.OpSuspect), 0)
		equal(t, "events in the first call", k.sink.all()[0].with, 2)
		r.stop()
	})
}

func TestAnEventThatKillsItsProcessAgainAndAgainIsSetAside(t *testing.T) {
	for deaths, want := range map[int]string{4: "delivered", 5: "set aside"} {
		t.Run(fmt.Sprint(deaths, " deaths: ", want), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.append("p1", "p2", "a1")
				k.die(2, -1)
				k.die(deaths, 0)
				r := k.start()
				pass(time.Minute)
				jobs := k.store.Parked()
				if want == "delivered" {
					equal(t, "delivered", len(k.sink.got()), 3)
					equal(t, "jobs", len(jobs), 0)
				} else {
					equal(t, "delivered", len(k.sink.got()), 2)
					if len(jobs) != 1 || jobs[0].Event.ID != "p1" || jobs[0].Failure.Code != core.CodeCrashed || jobs[0].Attempts != 5 {
						t.Errorf("jobs: %+v", jobs)
					}
				}
				equal(t, "events beyond the saved position", k.unsettled(), 0)
				r.stop()
			})
		})
	}
}

func TestHoldersThatEndDuringAnOutageSuspectNoEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		var down atomic.Bool
		down.Store(true)
		k.sink.answers(func(core.Lease, int) core.Result {
			if down.Load() {
				return outcome(core.Unavailable)
			}
			return core.Result{Outcome: core.Delivered}
		})
		for range 12 {
			// It loses its lease between two calls, again and again.
			r := k.start(func(c *relay.Config) { c.Owner = relay.NewOwner() })
			pass(20 * time.Second)
			k.faults.set(core.ErrFenced, memory.OpRenew, memory.OpSuspect, memory.OpRelease)
			pass(time.Minute)
			k.faults.set(nil, memory.OpRenew, memory.OpSuspect, memory.OpRelease)
			r.stop()
			pass(lease)
		}
		down.Store(false)
		r := k.start()
		pass(5 * time.Minute)
		equal(t, "delivered", len(k.sink.got()), 2)
		equal(t, "set aside", len(k.store.Parked()), 0)
		r.stop()
	})
}

func TestNothingIsSentBeforeItIsNoted(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "b1")
		k.die(3, -1)
		k.faults.set(errDown, memory.OpSuspect)
		r := k.start()
		pass(time.Minute)
		equal(t, "calls", k.sink.callCount(), 0)
		k.faults.set(nil, memory.OpSuspect)
		pass(11 * time.Second)
		equal(t, "delivered", len(k.sink.got()), 2)
		r.stop()
	})
}
