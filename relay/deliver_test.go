package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestEventsReachTheSinkAndThePositionIsSaved(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "b1", "a2")
		r := k.start()
		settle()
		k.append("a3")
		pass(time.Second)
		got := k.sink.got()
		slices.Sort(got)
		equalIDs(t, "delivered", got, "a1", "a2", "a3", "b1")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		l := k.sink.of("a1")[0].lease
		equal(t, "source", l.Source, "/outbox/memory/outbox")
		equal(t, "route", l.Route, "r")
		equal(t, "attempt", l.Attempt, 1)
		equal(t, "fence is set", l.Fence > 0, true)
		equal(t, "fence in status", r.route().Fence, l.Fence)
		equal(t, "state", r.route().State, relay.Holding)
		equal(t, "window", r.route().Window, 0)
		equal(t, "warnings", k.log.all(slog.LevelWarn), 0)
		r.stop()
	})
}

func TestARelayIsSilentWhileAllIsWell(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start()
		for i := range 100 {
			k.append(numbered("k", 100)[i])
			pass(10 * time.Second)
		}
		equal(t, "delivered", len(k.sink.got()), 100)
		equal(t, "lines", k.log.all(slog.LevelDebug), 1)
		r.stop()
	})
}

func TestARefusedEventHoldsItsKeyAndNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a1" && n < 5 {
				return refused("not today")
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "a2", "b1", "b2", "c1")
		r := k.start()
		pass(500 * time.Millisecond)
		got := k.sink.got()
		slices.Sort(got)
		equalIDs(t, "delivered meanwhile", got, "b1", "b2", "c1")
		equal(t, "events beyond the saved position", k.unsettled(), 5)
		s := r.route()
		equal(t, "blocked keys", s.BlockedKeys, 1)
		if b := s.Blocked; b == nil || b.Key != "a" || b.EventID != "a1" || b.Attempts != 1 || b.Reason != "not today" {
			t.Errorf("blocked key in status: %+v", b)
		}
		pass(time.Minute)
		tries := k.sink.of("a1")
		equal(t, "tries", len(tries), 5)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			between(t, "wait", tries[i+1].at.Sub(tries[i].at), want*8/10, want*12/10)
		}
		for i := range tries {
			equal(t, "attempt", tries[i].lease.Attempt, i+1)
			equal(t, "redelivered", tries[i].lease.Redelivered, false)
		}
		equalIDs(t, "delivered of the key at last", k.sink.got()[3:], "a1", "a2")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		equal(t, "lines when it began", k.log.with(slog.LevelWarn, "its key waits"), 1)
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "no key waits any more"), 1)
		r.stop()
	})
}

func TestTheWaitsOfAKeyBeginAnewWithItsNextEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if n < 4 {
				return refused("three times each")
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("a1", "a2")
		r := k.start()
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		tries := k.sink.of("a2")
		between(t, "first wait", tries[1].at.Sub(tries[0].at), time.Second*8/10, time.Second*12/10)
		r.stop()
	})
}

func TestARefusedEventWaitsTenMinutesAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return refused("never") }
		k.append("a1")
		r := k.start()
		pass(24 * time.Hour)
		tries := k.sink.of("a1")
		for i := 12; i < len(tries); i++ {
			between(t, "wait", tries[i].at.Sub(tries[i-1].at), 8*time.Minute, 10*time.Minute)
		}
		between(t, "tries in a day", time.Duration(len(tries)), 144, 190)
		r.stop()
	})
}

func TestReadingWaitsWhenTheWindowIsFull(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		open := make(chan struct{})
		k.sink.reply = func(l core.Lease, _ int) core.Result {
			select {
			case <-open:
			default:
				if l.Event.AggregateID == "held" {
					return refused("wait")
				}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append("held1")
		for i := range 100 {
			k.appendEvents(core.Event{AggregateID: string(rune('A' + i%26)), Type: "t"})
		}
		r := k.start(func(c *relay.Config) { c.Routes[0].Window = 20 })
		pass(5 * time.Minute)
		equal(t, "delivered beyond the position", len(k.sink.got()), 19)
		equal(t, "window", r.route().Window, 20)
		equal(t, "why nothing is read", r.route().Stalled, "wait")
		equal(t, "lines that tell it", k.log.with(slog.LevelWarn, "reading waits"), 1)
		close(open)
		pass(20 * time.Minute)
		equal(t, "why nothing is read", r.route().Stalled, "")
		equal(t, "lines that tell the end", k.log.with(slog.LevelInfo, "reading goes on"), 1)
		equal(t, "delivered when the key is free", len(k.sink.got()), 101)
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestWhatWaitsInMemoryIsBoundedInBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		block := make(chan struct{})
		k.sink.caps.PrefixPerKey = true
		k.sink.before = func(context.Context, []core.Lease) { <-block }
		for range 100 {
			k.appendEvents(core.Event{AggregateID: "a", Type: "t", Payload: make([]byte, 1000)})
		}
		r := k.start(func(c *relay.Config) { c.Routes[0].BatchBytes = 10_000 })
		settle()
		// Three batches, and one entry that always fits.
		between(t, "events in memory", time.Duration(r.route().Window), 15, 31)
		close(block)
		pass(time.Second)
		equal(t, "delivered", len(k.sink.got()), 100)
		for _, a := range k.sink.all() {
			if a.with > 10 {
				t.Fatalf("%d events of 1,000 bytes in a call of 10,000", a.with)
			}
		}
		r.stop()
	})
}

func TestOneSlowKeyMakesNoOtherWait(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.MaxBatch = 1
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			if ls[0].Event.AggregateID == "slow" {
				time.Sleep(10 * time.Second)
			}
		}
		k.append(numbered("slow", 3)...)
		for key := range 20 {
			k.append(numbered(string(rune('a'+key)), 3)...)
		}
		r := k.start()
		pass(time.Second)
		equal(t, "delivered while one call is slow", len(k.sink.got()), 60)
		pass(time.Minute)
		equal(t, "delivered", len(k.sink.got()), 63)
		r.stop()
	})
}

func TestABacklogGoesOutInFullCalls(t *testing.T) {
	for _, prefix := range []bool{false, true} {
		t.Run(map[bool]string{false: "one event of a key a call", true: "prefix per key"}[prefix], func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *kit) {
				k.sink.caps.PrefixPerKey = prefix
				k.sink.before = func(context.Context, []core.Lease) { time.Sleep(5 * time.Millisecond) }
				var events []core.Event
				for i := range 10_000 {
					events = append(events, core.Event{AggregateID: fmt.Sprint("k", i%1000), Type: "t"})
				}
				k.appendEvents(events...)
				r := k.start()
				pass(time.Minute)
				equal(t, "delivered", len(k.sink.got()), 10_000)
				between(t, "calls", time.Duration(k.sink.callCount()), 20, 40)
				equal(t, "events beyond the saved position", k.unsettled(), 0)
				if saves := k.faults.count(memory.OpSave); saves > 25 {
					t.Errorf("%d saves for 10,000 events", saves)
				}
				r.stop()
			})
		})
	}
}

func TestAKeysEventsGoOutInOneCallWhereTheSinkKeepsTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.sink.reply = func(l core.Lease, n int) core.Result {
			if l.Event.ID == "a3" && n == 1 {
				return refused("once")
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.append(numbered("a", 5)...)
		r := k.start()
		pass(500 * time.Millisecond)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		equal(t, "calls", k.sink.callCount(), 1)
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2", "a3", "a4", "a5")
		equal(t, "calls", k.sink.callCount(), 2)
		equal(t, "attempt of what was not attempted", k.sink.of("a4")[1].lease.Attempt, 1)
		r.stop()
	})
}

func TestARejectedEventIsSetAsideBeforeItsKeyGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(l core.Lease, n int) core.Result {
			switch {
			case l.Event.ID == "a1" && n == 1:
				return refused("try again")
			case l.Event.ID == "a1":
				return core.Result{Outcome: core.Rejected, Err: errors.New("too large")}
			}
			return core.Result{Outcome: core.Delivered}
		}
		k.faults.set(errors.New("no primary"), memory.OpPark)
		k.append("a1", "a2", "b1")
		r := k.start()
		pass(10 * time.Second)
		equalIDs(t, "delivered while it can't be set aside", k.sink.got(), "b1")
		equal(t, "events beyond the saved position", k.unsettled(), 3)
		equal(t, "store error in status", r.route().StoreError, "parking events: no primary")
		k.faults.set(nil, memory.OpPark)
		pass(15 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a2")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		jobs := k.store.Parked()
		if len(jobs) != 1 {
			t.Fatalf("jobs: %+v", jobs)
		}
		j := jobs[0]
		equal(t, "job's event", j.Event.ID, "a1")
		equal(t, "job's sink", j.Sink, "s")
		equal(t, "job's attempts", j.Attempts, 2)
		equal(t, "failure", j.Failure, core.Failure{Code: core.CodeRejected, Reason: "too large"})
		equal(t, "lines about it", k.log.with(slog.LevelError, "set aside"), 1)
		equal(t, "lines about the store", k.log.with(slog.LevelWarn, "the store fails"), 1)
		equal(t, "lines when it works again", k.log.with(slog.LevelInfo, "the store works again"), 1)
		r.stop()
	})
}

func TestADocumentThatCannotBeDecodedIsSetAsideAndTheRestFlows(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1")
		k.store.Put(memory.Foreign{Event: event("a2"), Err: errors.New("no payload")})
		k.append("a3")
		r := k.start()
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a3")
		jobs := k.store.Parked()
		if len(jobs) != 1 || jobs[0].Event.ID != "a2" ||
			jobs[0].Failure != (core.Failure{Code: core.CodeUndecodable, Reason: "no payload"}) {
			t.Errorf("jobs: %+v", jobs)
		}
		equal(t, "lines about it", k.log.all(slog.LevelWarn), 1)
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestAnEventThatIsTheQueuesIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		c, err := k.store.Acquire(t.Context(), core.AcquireRequest{Name: "r", Owner: "earlier"})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Park(t.Context(), []core.Parked{{Entry: batch.Entries[0], Sink: "s"}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := k.start()
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestARoutePassesOverWhatItDoesNotMatch(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		for _, e := range []core.Event{
			{ID: "1", Aggregate: "order", Type: "order.placed"},
			{ID: "2", Aggregate: "order", Type: "audit"},
			{ID: "3", Aggregate: "user", Type: "order.placed"},
			{ID: "4", Aggregate: "order", Type: "order.paid"},
			{ID: "5", Aggregate: "order", Type: "order"},
			{ID: "6", Aggregate: "order", Type: "mail"},
		} {
			e.AggregateID = e.ID
			k.appendEvents(e)
		}
		r := k.start(func(c *relay.Config) {
			c.Routes[0].Match = relay.Match{Aggregates: []string{"order"}, Types: []string{"order.*", "mail"}}
		})
		pass(time.Second)
		got := k.sink.got()
		slices.Sort(got)
		equalIDs(t, "delivered", got, "1", "4", "6")
		equal(t, "events beyond the saved position", k.unsettled(), 0)
		r.stop()
	})
}

func TestMarkingReachesTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1")
		r := k.start(func(c *relay.Config) { c.Routes[0].Marking = true })
		pass(time.Second)
		equal(t, "marked", !k.store.PublishedAt("a1").IsZero(), true)
		r.stop()
	})
}

func TestRoutesRunSideBySide(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		other := newScript(t)
		other.reply = func(core.Lease, int) core.Result { return outcome(core.Unavailable) }
		k.append("a1", "a2")
		r := k.start(func(c *relay.Config) {
			c.Sinks["other"] = other
			c.Routes = append(c.Routes, relay.Route{Name: "r2", Sink: "other"})
		})
		pass(time.Second)
		equalIDs(t, "delivered to the sink that works", k.sink.got(), "a1", "a2")
		s := r.Status()
		equal(t, "state", s.Routes[0].State, relay.Holding)
		equal(t, "state beside it", s.Routes[1].State, relay.Waiting)
		equal(t, "reason", s.Routes[1].SinkError, "scripted: unavailable")
		r.stop()
	})
}
