package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// parkedKeyRules are about what parking means for reading, and for parking again.
func parkedKeyRules() []rule {
	return []rule{
		parking("ParkedTwiceChangesNothing", []string{"a1", "b1", "c1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1", "c1")
			got := k.lend(k.open("a1", "b1", "c1")[1:], "b1", "c1")
			k.settle(core.Settlement{Kind: core.Complete}, got[1])
			again := k.parkAll(k.failure("a1", true), k.failure("b1", true), k.failure("c1", true))
			open := k.open("a1", "b1")
			k.wantOpenState(open[0], core.JobReady, 0)
			k.wantOpenState(open[1], core.JobActive, 0)
			if again[0].ID != open[0].ID || again[0].Ref == nil {
				k.Errorf("parked again it is told as %q, want %q", again[0].ID, open[0].ID)
			}
			k.settle(core.Settlement{Kind: core.Complete}, got[0])
		}),
		parking("StaleHolderParksNothing", []string{"a1", "b1"}, func(k *parkingKit) {
			k.parkReady("a1")
			stale := k.c
			k.c = k.takeOver("second")
			k.wantFenced("parking by a stale holder", stale.Park(k.ctx, []core.Parked{k.ready("b1"), k.failure("a1", true)}))
			k.wantOpenState(k.open("a1")[0], core.JobReady, 0)
		}),
		parking("NextHolderFindsThem", []string{"a1", "a2", "b1"}, func(k *parkingKit) {
			k.parkReady("a1", "a2")
			k.lend(k.open("a1", "a2")[:1], "a1")
			k.c = k.takeOver("second")
			open := k.open("a1", "a2")
			k.wantOpenState(open[0], core.JobActive, 0)
			k.wantOpenState(open[1], core.JobReady, 0)
			k.wantQueued(k.expect(k.c, "a1", "a2", "b1"), "a1", "a2")
		}),
		parking("CompletedStaysKnown", []string{"a1", "b1"}, func(k *parkingKit) {
			k.parkReady("a1")
			k.settle(core.Settlement{Kind: core.Complete}, k.lend(k.open("a1"), "a1")...)
			k.wantQueued(k.expect(k.takeOver("second"), "a1", "b1"), "a1")
		}),
		// The position stands still for b's sake, and a1 was settled before a2 was
		// parked.
		parking("SettledBeforeAParkedOneIsQueued", []string{"b1", "a1", "a2", "c1"}, func(k *parkingKit) {
			k.parkReady("a2")
			k.wantQueued(k.expect(k.takeOver("second"), "b1", "a1", "a2", "c1"), "a1", "a2")
		}, cursors),
		parking("CompletedOneOfTheKeyCounts", []string{"b1", "a1", "a2"}, func(k *parkingKit) {
			k.parkReady("a2")
			k.settle(core.Settlement{Kind: core.Complete}, k.lend(k.open("a2"), "a2")...)
			k.wantQueued(k.expect(k.takeOver("second"), "b1", "a1", "a2"), "a1", "a2")
		}, cursors),
		parking("LaterOfTheKeyAreNotQueued", []string{"a1", "a2", "a3"}, func(k *parkingKit) {
			k.parkReady("a1")
			k.wantQueued(k.expect(k.takeOver("second"), "a1", "a2", "a3"), "a1")
		}),
		// Nobody knows what key it has: it was parked when it was read.
		parking("UndecodableHidesNothing", []string{"a1"}, func(k *parkingKit) {
			k.put(Document{Event: event("bad"), Undecodable: true})
			k.append("b1")
			for _, e := range k.read(k.c, 2) {
				if e.Err != nil {
					p := parked(e)
					p.Failure = core.Failure{Code: core.CodeUndecodable, Reason: e.Err.Error()}
					k.parkAll(p)
				}
			}
			k.wantQueued(k.expect(k.takeOver("second"), "a1", "bad", "b1"), "bad")
		}, putting),
	}
}

// parkedActRules are about what operators do.
func parkedActRules() []rule {
	rules := []rule{
		parking("RetryByHandIsListedAgain", []string{"a1", "a2", "b1"}, func(k *parkingKit) {
			failed := k.failure("a1", false)
			failed.Attempts = 5
			p := k.parkAll(failed, k.ready("a2"), k.failure("b1", true))
			k.open("a2", "b1")
			k.retry(2, core.JobFilter{Cursor: cursorName})
			open := k.open("a1", "a2", "b1")
			for i, o := range open {
				k.wantOpenState(o, core.JobReady, 0)
				k.wantDue(o, 0)
				if k.info(p[i].ID).Holds {
					k.Errorf("people are told that %s holds its key", o.EventID)
				}
			}
			for _, c := range k.lend(open, "a1", "a2", "b1") {
				if l := c.Lease; l.Redriven != (l.Event.ID != "a2") || l.Attempt != 1 {
					k.Errorf("lent %+v", l)
				}
			}
		}),
		parking("DiscardReleasesTheKey", []string{"a1", "a2"}, func(k *parkingKit) {
			p := k.parkAll(k.failure("a1", true), k.ready("a2"))
			k.discard(1, core.JobFilter{IDs: []string{p[0].ID}})
			k.open("a2")
			if info := k.wantState(p[0].ID, core.JobCompleted); info.Holds {
				k.Error("people are told that it holds its key")
			} else if !info.ExpireAt.IsZero() {
				k.Errorf("it is kept until %v, and its event would be sent if it were read after that", info.ExpireAt)
			}
			k.discard(0, core.JobFilter{IDs: []string{p[0].ID}})
			k.retry(0, core.JobFilter{IDs: []string{p[0].ID}})
			k.wantQueued(k.expect(k.takeOver("second"), "a1", "a2"), "a1", "a2")
		}),
		parking("ReadyIsDiscarded", []string{"a1", "b1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1")
			open := k.open("a1", "b1")
			k.lend(open[1:], "b1")
			k.discard(1, core.JobFilter{Cursor: cursorName})
			k.lend(open)
			k.open("b1")
			k.wantQueued(k.expect(k.takeOver("second"), "a1", "b1"), "a1", "b1")
		}),
		parking("StatsCountThem", []string{"a1", "b1", "c1", "d1"}, func(k *parkingKit) {
			delayed := k.ready("b1")
			delayed.Delay = time.Hour
			k.parkAll(k.ready("a1"), delayed, k.failure("c1", true), k.failure("d1", false))
			k.lend(k.open("a1", "b1", "c1")[:1], "a1")
			s, err := k.admin.Stats(k.ctx)
			if err != nil || len(s.Cursors) != 1 {
				k.Fatalf("stats %+v, %v", s, err)
			}
			if c := s.Cursors[0]; c.Name != cursorName || c.Parked != 2 || c.Failed != 2 {
				k.Errorf("%d are parked and %d failed, want 2 and 2", c.Parked, c.Failed)
			}
			if s.Active != 1 || s.Delayed != 1 || s.Ready != 0 || s.Failed != 2 {
				k.Errorf("stats %+v", s)
			}
		}),
		parking("ExplainTellsWhatComesFirst", []string{"a1", "a2", "a3", "b1", "b2"}, func(k *parkingKit) {
			delayed := k.ready("a1")
			delayed.Delay, delayed.Attempts, delayed.Failure = time.Hour, 1, refusal
			p := k.parkAll(delayed, k.ready("a2"), k.ready("a3"), k.failure("b1", false), k.ready("b2"))
			k.wantCause(p[1].ID, core.CausePredecessor) // delayed
			k.wantCause(p[4].ID, core.CauseDue)         // one that failed holds nothing
			got := k.lend(k.open("a1", "a2", "a3", "b2")[:1], "a1")
			k.wantCause(p[2].ID, core.CausePredecessor) // leased
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal, Holds: true}, got...)
			k.wantCause(p[1].ID, core.CausePredecessor) // holds the key
			k.wantCause(p[0].ID, core.CauseFailed)
			k.discard(1, core.JobFilter{IDs: []string{p[0].ID}})
			k.wantCause(p[1].ID, core.CauseDue)
			k.wantCause(p[0].ID, core.CauseDiscarded)
		}),
		parking("ParkDoesNotWake", []string{"a1", "b1"}, func(k *parkingKit) {
			sleeps(func(*queueKit) func() {
				return func() { k.parkAll(k.ready("a1"), k.failure("b1", true)) }
			})(k.queueKit)
		}),
		parking("RetryByHandWakes", []string{"a1"}, func(k *parkingKit) {
			k.parkAll(k.failure("a1", false))
			k.wantBell(func() { k.retry(1, core.JobFilter{Cursor: cursorName}) })
		}),
		parking("RetryByHandMakesAWaitingOneDue", []string{"a1", "a2"}, func(k *parkingKit) {
			delayed := k.ready("a1")
			delayed.Delay, delayed.Attempts, delayed.Failure = time.Hour, 3, refusal
			p := k.parkAll(delayed, k.ready("a2"))
			k.retry(0, core.JobFilter{Cursor: cursorName})
			k.wantBell(func() { k.retry(1, core.JobFilter{IDs: []string{p[0].ID}}) })
			open := k.open("a1", "a2")
			k.wantOpenState(open[0], core.JobReady, 3)
			k.wantDue(open[0], 0)
			if got := k.lend(open[:1], "a1")[0]; got.Lease.Redriven {
				k.Errorf("lent %+v", got.Lease)
			}
		}),
		parking("DiscardWakes", []string{"a1"}, func(k *parkingKit) {
			k.parkAll(k.failure("a1", true))
			k.wantBell(func() { k.discard(1, core.JobFilter{Cursor: cursorName}) })
		}),
	}
	for i := range rules {
		rules[i].needs = append(rules[i].needs, administering)
	}
	return rules
}

// wantBell fails unless what do does wakes for the sink.
func (k *parkingKit) wantBell(do func()) {
	k.Helper()
	w := k.watch()
	do()
	got := w.barrier()
	if len(got) == 0 {
		k.Error("it woke nobody")
	}
	for _, wake := range got {
		if wake.Sink != sinkName {
			k.Errorf("it woke for the sink %q, want %q", wake.Sink, sinkName)
		}
	}
}

// wantCause fails unless the nearest cause is of this kind.
func (k *parkingKit) wantCause(id, code string) {
	k.Helper()
	e, err := k.admin.Explain(k.ctx, id)
	if err != nil || len(e.Causes) == 0 || e.Causes[0].Code != code {
		k.Errorf("%s waits for %+v, %v; want %s", id, e.Causes, err, code)
	}
}
