package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

var errDown = errors.New("no primary")

func TestTheLeaseIsRenewedWhileNothingHappens(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start()
		fence := func() uint64 { return r.route().Fence }
		settle()
		first := fence()
		pass(time.Hour)
		equal(t, "fence after an hour", fence(), first)
		// One each third of a lease, but not after the saves of an idle cursor.
		between(t, "renewals in an hour", time.Duration(k.faults.count(memory.OpRenew)), 640, 721)
		r.stop()
	})
}

func TestTheLeaseIsRenewedWhileTheSinkIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(context.Context, []core.Lease) { time.Sleep(50 * time.Second) }
		k.append("a1", "a2")
		r := k.start()
		pass(2 * time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		equal(t, "fences", k.sink.of("a2")[0].lease.Fence, k.sink.of("a1")[0].lease.Fence)
		r.stop()
	})
}

func TestRenewingIsNotHeldUpByAnotherWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.onEach(func(op string) error {
			if op == memory.OpSave {
				time.Sleep(lease - time.Second)
				return errDown
			}
			return nil
		})
		k.append("a1")
		r := k.start()
		settle()
		fence := r.route().Fence
		pass(10 * time.Minute)
		equal(t, "fence", r.route().Fence, fence)
		k.faults.onEach(nil)
		pass(lease + 11*time.Second)
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestSavingCountsAsRenewing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start()
		for _, id := range numbered("a", 60) {
			k.append(id)
			pass(time.Second)
		}
		equal(t, "renewals beside one save a second", k.faults.count(memory.OpRenew), 0)
		r.stop()
	})
}

func TestWhenTheLeaseEndsOnItsOwnClockTheTermIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var cancelled time.Time
		k.sink.before = func(ctx context.Context, ls []core.Lease) {
			if ls[0].Event.ID == "b1" && cancelled.IsZero() {
				<-ctx.Done()
				cancelled = time.Now()
			}
		}
		k.append("a1")
		r := k.start()
		pass(time.Second)
		k.faults.set(errDown, append([]string{memory.OpAcquire, memory.OpRelease}, writes...)...)
		k.append("b1")
		pass(lease + time.Second)
		equal(t, "state", r.route().State, relay.Standby)
		equal(t, "the call was not made while nothing could be read", cancelled.IsZero(), true)

		k.faults.set(nil, append([]string{memory.OpAcquire, memory.OpRelease}, writes...)...)
		pass(11 * time.Second)
		equal(t, "state", r.route().State, relay.Holding)
		k.faults.set(errDown, writes...)
		last := time.Now()
		pass(lease + time.Second)
		between(t, "the call was cancelled", cancelled.Sub(last), lease*2/3-time.Second, lease)
		k.faults.set(nil, writes...)
		pass(11 * time.Second)
		tries := k.sink.of("b1")
		equal(t, "tries", len(tries), 2)
		equal(t, "the fence rose", tries[1].lease.Fence > tries[0].lease.Fence, true)
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		equal(t, "lines about it", k.log.with(slog.LevelWarn, "the cursor was lost"), 2)
		r.stop()
	})
}

func TestAnOperationThatIsFencedEndsTheTermAtOnce(t *testing.T) {
	for _, op := range []string{memory.OpRead, memory.OpSave, memory.OpRenew, memory.OpPark, memory.OpSuspect} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				var cancelled atomic.Int64
				k.sink.before = func(ctx context.Context, ls []core.Lease) {
					if ls[0].Event.ID == "slow1" && cancelled.Load() == 0 {
						<-ctx.Done()
						cancelled.Store(time.Now().UnixNano())
					}
				}
				k.sink.reply = func(l core.Lease, _ int) core.Result {
					if op == memory.OpPark && l.Event.ID == "a1" {
						return outcome(core.Rejected)
					}
					return core.Result{Outcome: core.Delivered}
				}
				fenced := func() { k.faults.set(core.ErrFenced, op) }
				if op == memory.OpSuspect { // there is no call beside it
					k.append("a1")
					k.die(2, -1)
					fenced()
				}
				k.sink.caps.MaxBatch = 1
				r := k.start()
				settle()
				switch op {
				case memory.OpSuspect:
				case memory.OpRead:
					k.append("slow1")
					settle()
					fenced()
					k.append("a1")
				default:
					fenced()
					k.append("a1", "slow1")
				}
				began := time.Now()
				pass(6 * time.Second) // a renewal, and less than a lease
				if op != memory.OpSuspect {
					between(t, "the call was cancelled", time.Duration(cancelled.Load()-began.UnixNano()), 0, 6*time.Second)
				}
				equal(t, "lines about it", k.log.with(slog.LevelWarn, "the cursor was lost") > 0, true)
				k.faults.set(nil, op)
				pass(time.Minute)
				equal(t, "events beyond the saved position", k.unsettled(), 0)
				r.stop()
			})
		})
	}
}

func TestTwoProcessesOfOneOwnerDoNotSpin(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		owner := func(c *relay.Config) { c.Owner = "twice" }
		a, b := k.start(owner), k.start(owner)
		pass(time.Hour)
		if n := k.faults.count(memory.OpAcquire); n > 1500 {
			t.Errorf("%d take-overs in an hour", n)
		}
		equal(t, "it is told", k.log.with(slog.LevelWarn, "the cursor was lost") > 0, true)
		a.stop()
		b.stop()
	})
}

func TestResultsThatComeAfterTheLeaseWasLostAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		release := make(chan struct{})
		first := true
		k.sink.before = func(_ context.Context, _ []core.Lease) {
			if first {
				first = false
				<-release // deaf to its context
			}
		}
		k.append("a1")
		r := k.start()
		settle()
		k.faults.set(errDown, append([]string{memory.OpAcquire}, writes...)...)
		pass(2 * lease)
		k.faults.set(nil, append([]string{memory.OpAcquire}, writes...)...)
		pass(time.Minute)
		equal(t, "events are sent beside the call that goes on", k.sink.callCount(), 1)
		equal(t, "lines about it", k.log.with(slog.LevelWarn, "goes on although its context has ended"), 1)
		equal(t, "the position passed it", k.unsettled(), 1)
		close(release)
		pass(time.Second)
		equal(t, "tries", len(k.sink.of("a1")), 2)
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestOneRelayDeliversAndTheOtherTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		frozen := make(chan struct{}) // lets everything of the first relay hang
		var freeze atomic.Bool
		a := k.start(func(c *relay.Config) {
			c.Owner = "a"
			c.Log = &gated{Log: k.store, closed: &freeze, open: frozen}
		})
		settle()
		b := k.start(func(c *relay.Config) { c.Owner = "b" })
		settle()
		k.append("x1")
		pass(20 * time.Second)
		equal(t, "delivered", len(k.sink.got()), 1)
		equal(t, "state of the other", b.route().State, relay.Standby)
		equal(t, "holder as the other sees it", b.route().HeldBy, "a")

		freeze.Store(true)
		began := time.Now()
		k.append("x2")
		for b.route().State != relay.Holding {
			pass(100 * time.Millisecond)
		}
		between(t, "take-over after the holder fell silent", time.Since(began), 0, lease*3/2)
		pass(time.Second)
		equal(t, "x2 was sent by the new holder", k.sink.of("x2")[0].lease.Fence, b.route().Fence)

		freeze.Store(false)
		close(frozen)
		pass(time.Minute)
		equal(t, "state of the first", a.route().State, relay.Standby)
		equal(t, "fence", b.route().Fence > 0, true)

		began = time.Now()
		b.stop()
		for a.route().State != relay.Holding {
			pass(100 * time.Millisecond)
		}
		between(t, "take-over after a drain", time.Since(began), 0, lease/3+100*time.Millisecond)
		a.stop()
	})
}

// gated is a log whose operations wait while closed is set, as those of a
// frozen process do.
type gated struct {
	core.Log
	closed *atomic.Bool
	open   chan struct{}
}

func (g *gated) wait() {
	if g.closed.Load() {
		<-g.open
	}
}

func (g *gated) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	g.wait()
	c, err := g.Log.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return &gatedCursor{Cursor: c, g: g}, nil
}

type gatedCursor struct {
	core.Cursor
	g *gated
}

func (c *gatedCursor) Read(ctx context.Context, l core.ReadLimit) (core.Batch, error) {
	b, err := c.Cursor.Read(ctx, l)
	c.g.wait()
	return b, err
}

func (c *gatedCursor) Save(ctx context.Context, m []core.Mark) error {
	c.g.wait()
	return c.Cursor.Save(ctx, m)
}

func (c *gatedCursor) Renew(ctx context.Context) error {
	c.g.wait()
	return c.Cursor.Renew(ctx)
}

func TestASilentCursorIsTakenOverWhateverTheStoresClockSays(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		still := time.Now()
		k.store = memory.New(memory.Config{Now: func() time.Time { return still }})
		if _, err := k.store.Acquire(t.Context(), core.AcquireRequest{Name: "r", Owner: "dead"}); err != nil {
			t.Fatal(err)
		}
		r := k.start()
		pass(lease - time.Second)
		equal(t, "state before a whole lease", r.route().State, relay.Standby)
		pass(lease/3 + 2*time.Second)
		equal(t, "state after it", r.route().State, relay.Holding)
		r.stop()
	})
}

func TestACursorThatChangesIsNotTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		still := time.Now()
		k.store = memory.New(memory.Config{Now: func() time.Time { return still }})
		c, err := k.store.Acquire(t.Context(), core.AcquireRequest{Name: "r", Owner: "slow"})
		if err != nil {
			t.Fatal(err)
		}
		r := k.start()
		for range 20 {
			pass(lease * 9 / 10)
			if err := c.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "state", r.route().State, relay.Standby)
		equal(t, "warnings", k.log.all(slog.LevelWarn), 0)
		r.stop()
	})
}

func TestTheRelayWaitsForAStoreThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.set(errDown, memory.OpAcquire)
		k.append("a1")
		r := k.start()
		pass(time.Hour)
		between(t, "tries in an hour", time.Duration(k.faults.count(memory.OpAcquire)), 300, 500)
		equal(t, "reason in status", r.route().StoreError, `acquiring the cursor "r": no primary`)
		k.faults.set(nil, memory.OpAcquire)
		pass(12 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1")
		equal(t, "warnings", k.log.all(slog.LevelWarn), 1)
		equal(t, "lines when it works again", k.log.with(slog.LevelInfo, "the store works again"), 1)
		equal(t, "reason in status", r.route().StoreError, "")
		r.stop()
	})
}

func TestALayoutThatIsNewerEndsTheRelay(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.set(fmt.Errorf("reading the layout: %w", core.ErrNewerLayout), memory.OpAcquire)
		r := k.start()
		pass(time.Minute)
		equal(t, "tries", k.faults.count(memory.OpAcquire), 1)
		if err := r.end(); !errors.Is(err, core.ErrNewerLayout) {
			t.Fatalf("Run returned %v", err)
		}
	})
}

func TestReadingGoesOnAfterAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start()
		settle()
		k.faults.set(errDown, memory.OpRead)
		k.append("a1")
		pass(time.Minute)
		between(t, "reads in a minute of errors", time.Duration(k.faults.count(memory.OpRead)), 8, 30)
		k.faults.set(nil, memory.OpRead)
		pass(11 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1")
		equal(t, "warnings", k.log.all(slog.LevelWarn), 1)
		r.stop()
	})
}

func TestThePlaceOfAnIdleCursorIsSavedOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1")
		r := k.start()
		pass(time.Second)
		before, saves := r.route().Position, k.faults.count(memory.OpSave)
		pass(10 * time.Minute)
		equal(t, "saves in ten idle minutes", k.faults.count(memory.OpSave)-saves, 10)
		equal(t, "the position moved", r.route().Position.Compare(before), 1)
		r.stop()
	})
}

func TestAPlaceIsNotSavedWhileAnEventIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return refused("no") }
		k.append("a1")
		r := k.start()
		pass(time.Hour)
		equal(t, "saves", k.faults.count(memory.OpSave), 0)
		equal(t, "events beyond the saved position", k.unsettled(), 1)
		r.stop()
	})
}

func TestAPlaceThatTheStoreWantsSavedSoonIsSavedWhenAllIsSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1")
		r := k.start(func(c *relay.Config) { c.Log = hurried{k.store} })
		pass(6 * time.Second) // the memory store tells its place after 5
		equal(t, "saves", k.faults.count(memory.OpSave), 2)
		r.stop()
	})
}

// hurried is a log that asks for each of its places to be saved soon.
type hurried struct{ core.Log }

func (h hurried) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := h.Log.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return hurriedCursor{c}, nil
}

type hurriedCursor struct{ core.Cursor }

func (c hurriedCursor) Read(ctx context.Context, l core.ReadLimit) (core.Batch, error) {
	b, err := c.Cursor.Read(ctx, l)
	b.SaveSoon = b.Reached != nil
	return b, err
}
