package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestADrainFinishesWhatIsUnderWayAndBeginsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(ctx context.Context, _ []core.Lease) {
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
				t.Error("the context of a call ended within the drain time")
			}
		}
		k.append("a1", "a2", "b1")
		r := k.start()
		pass(time.Second)
		began := time.Now()
		r.stop()
		equal(t, "the drain took", time.Since(began), 19*time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "b1")
		equal(t, "events beyond the saved position", k.unsettled(), 2) // a2 stands before b1
		c, err := k.store.Acquire(t.Context(), core.AcquireRequest{Name: "r", Owner: "next"})
		if err != nil {
			t.Fatalf("the cursor was not given back: %v", err)
		}
		_ = c.Release(t.Context())
		equal(t, "state", r.route().State, relay.Standby)
	})
}

func TestADrainCancelsCallsAfterItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(ctx context.Context, _ []core.Lease) { <-ctx.Done() }
		k.append("a1")
		r := k.start(func(c *relay.Config) { c.Drain = 3 * time.Second })
		pass(time.Second)
		began := time.Now()
		r.stop()
		equal(t, "the drain took", time.Since(began), 3*time.Second)
	})
}

func TestACallThatIgnoresItsContextIsNamedAndTheCursorKept(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		release := make(chan struct{})
		k.sink.before = func(context.Context, []core.Lease) { <-release }
		k.append("a1")
		r := k.start()
		settle()
		began := time.Now()
		err := r.end()
		if err == nil || !strings.Contains(err.Error(), `route "r": 1 calls to the sink "s" did not end`) {
			t.Errorf("error: %v", err)
		}
		between(t, "the drain took", time.Since(began), 30*time.Second, 36*time.Second)
		_, err = k.store.Acquire(t.Context(), core.AcquireRequest{Name: "r", Owner: "next"})
		if _, held := errors.AsType[*core.HeldError](err); !held {
			t.Errorf("another process gets the cursor beside the call: %v", err)
		}
		close(release)
		settle()
		equal(t, "what came late was not saved", k.unsettled(), 1)
	})
}

func TestADrainSavesWithTheStoreBackInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.set(errDown, memory.OpSave)
		k.append("a1")
		r := k.start()
		pass(50 * time.Millisecond)
		time.AfterFunc(2*time.Second, func() { k.faults.set(nil, memory.OpSave) })
		r.stop()
		equal(t, "events beyond the saved position", k.unsettled(), 0)
	})
}

func TestADrainEndsWithTheStoreAway(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.set(errDown, append([]string{memory.OpRelease}, writes...)...)
		r := k.start()
		settle()
		k.append("a1")
		began := time.Now()
		r.stop()
		between(t, "the drain took", time.Since(began), 0, 6*time.Second)
	})
}

func TestRunEndsAtOnceOnStandby(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		a, b := k.start(), k.start()
		settle()
		began := time.Now()
		b.stop()
		a.stop()
		equal(t, "it took", time.Since(began), 0)
		equal(t, "running", a.Status().Running, false)
	})
}

func TestOnlyOneRunAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start()
		settle()
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run went on")
		}
		r.stop()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		k.append("a1")
		if err := r.Run(ctx); err != nil {
			t.Errorf("running again: %v", err)
		}
		equalIDs(t, "delivered", k.sink.got(), "a1")
	})
}

func TestNoGoroutineIsLeftBehind(t *testing.T) {
	t.Parallel()
	// A bubble ends only when all its goroutines have: with one left, the test
	// panics.
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Config{})
		sink := newScript(t)
		sink.reply = func(l core.Lease, n int) core.Result {
			return outcome([]core.Outcome{core.Unavailable, core.Refused, core.Unknown, core.Rejected}[(n+len(l.Event.ID))%4])
		}
		r, err := relay.New(relay.Config{
			Log: store, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]core.Sink{"s": sink},
			Routes: []relay.Route{{Name: "r", Sink: "s"}, {Name: "r2", Sink: "s", Match: relay.Match{Types: []string{"none"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range append(numbered("a", 50), numbered("b", 50)...) {
			store.Put(memory.Foreign{Event: event(id)})
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
