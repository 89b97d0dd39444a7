package storetest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

func parkRules() []rule {
	return []rule{
		{name: "KeepsTheEventAndTheReason", needs: []need{failures}, check: func(k *kit) {
			c := k.cursor()
			k.commit(full())
			e := k.read(c, 1)[0]
			p := core.Parked{
				Entry: e, Sink: "events", Attempts: 7,
				Failure: core.Failure{Code: core.CodeRejected, Reason: "too large: 9 bytes, limit 8"},
			}
			if err := c.Park(k.ctx, []core.Parked{p}); err != nil {
				k.Fatal(err)
			}
			got := k.failed()[e.Event.ID]
			k.wantSame(got.Event, full())
			if got.Sink != p.Sink || got.Attempts != p.Attempts || got.Failure != p.Failure {
				k.Errorf("kept %q, %d, %+v, want %q, %d, %+v",
					got.Sink, got.Attempts, got.Failure, p.Sink, p.Attempts, p.Failure)
			}
		}},
		{name: "OutlivesItsTerm", needs: []need{failures}, check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			k.park(c, k.read(c, 1)[0]) // and dies before it saves
			k.takeOver("second")
			if _, there := k.failed()["a"]; !there {
				k.Error("the parked event is not kept")
			}
		}},
		{name: "TwiceChangesNothing", needs: []need{failures}, check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			e := k.read(c, 1)[0]
			k.park(c, e)
			want := k.failed()["a"].Failure
			k.parkAgain(c, e)
			c = k.takeOver("second")
			k.parkAgain(c, k.read(c, 1)[0])
			if all := k.failed(); len(all) != 1 || all["a"].Failure != want {
				k.Errorf("kept %+v, want the first failure %+v alone", all, want)
			}
		}},
		{name: "SeveralAtOnce", needs: []need{failures}, check: func(k *kit) {
			c := k.cursor()
			const n = 120
			events := make([]core.Event, n)
			for i := range events {
				events[i] = event(fmt.Sprintf("e-%03d", i))
			}
			k.commit(events...)
			var all []core.Parked
			for _, e := range k.read(c, n) {
				all = append(all, parked(e))
			}
			k.park(c, all[0].Entry) // one of them is there already
			if err := c.Park(k.ctx, all); err != nil {
				k.Fatal(err)
			}
			if got := len(k.failed()); got != n {
				k.Errorf("%d events are kept, want %d", got, n)
			}
		}},
		{name: "QueuedForTheNextHolder", check: func(k *kit) {
			c := k.cursor()
			k.appendApart("a", "b", "c")
			k.park(c, k.read(c, 3)[1])
			k.wantQueued(k.expect(k.takeOver("second"), "a", "b", "c"), "b")
		}},
		{name: "QueuedForTheSameOwner", check: func(k *kit) {
			c := k.cursor()
			k.appendApart("a", "b", "c")
			k.park(c, k.read(c, 3)[1])
			c = k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.wantQueued(k.expect(c, "a", "b", "c"), "b")
		}},
		{name: "QueuedWhenTheFirstScanIsRepeated", check: func(k *kit) {
			k.appendApart("a", "b", "c")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			entries := k.read(c, 3)
			k.park(c, entries[0])
			k.park(c, entries[2])
			k.save(c, entries[:2]...)
			got := k.readUntil(k.takeOver("second"), k.end(), false)
			k.wantFresh(got, []string{"a", "b"}, "c")
			want := []string{"c"}
			if idsOf(got)[0] == "a" {
				want = []string{"a", "c"}
			}
			k.wantQueued(got, want...)
		}},
		{name: "QueuedAfterRecovery", needs: []need{losing}, check: func(k *kit) {
			c := k.cursor()
			k.appendApart("a", "b", "c")
			entries := k.read(c, 3)
			k.park(c, entries[2])
			k.save(c, entries[0])
			k.loseToken(c)
			got := k.readUntil(k.acquire(k.other, core.AcquireRequest{Owner: "second"}), k.end(), false)
			k.wantFresh(got, []string{"a"}, "b", "c")
			k.wantQueued(onlyNew(got), "c")
		}},
		// A settled parked event that a recovery reads again is still the
		// queue's.
		{name: "QueuedBehindThePosition", needs: []need{losing}, check: func(k *kit) {
			c := k.cursor()
			k.appendApart("a", "b", "c")
			entries := k.read(c, 3)
			k.park(c, entries[1])
			k.save(c, entries...)
			k.loseToken(c)
			got := k.readUntil(k.acquire(k.other, core.AcquireRequest{Owner: "second"}), k.end(), false)
			for _, e := range got {
				if e.Queued != (e.Event.ID == "b") {
					k.Errorf("%s: queued is %t", e.Event.ID, e.Queued)
				}
			}
		}},
		{name: "NotQueuedForAnotherCursor", needs: []need{cursors}, check: func(k *kit) {
			one, other := k.cursor(), k.acquire(k.store, core.AcquireRequest{
				Name: "other", Owner: "me", Start: core.Start{Now: true},
			})
			k.append("a")
			k.park(one, k.read(one, 1)[0])
			k.wantQueued(k.expect(other, "a"))
			if k.h.Failed != nil && len(k.failedOf("other")) != 0 {
				k.Error("the event is kept for another cursor")
			}
		}},
		{name: "ThePositionPassesIt", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			entries := k.read(c, 2)
			k.park(c, entries[0])
			k.save(c, entries[0])
			k.expect(k.takeOver("second"), "b")
		}},
		{name: "LongReasonIsCut", needs: []need{failures}, check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			p := parked(k.read(c, 1)[0])
			p.Failure.Reason = "." + strings.Repeat("é", core.MaxReasonBytes)
			if err := c.Park(k.ctx, []core.Parked{p}); err != nil {
				k.Fatal(err)
			}
			got := k.failed()["a"].Failure.Reason
			if len(got) > core.MaxReasonBytes || len(got) < core.MaxReasonBytes-8 || !utf8.ValidString(got) {
				k.Errorf("kept %d bytes, valid UTF-8: %t; want valid UTF-8 of about %d bytes",
					len(got), utf8.ValidString(got), core.MaxReasonBytes)
			}
		}},
		{name: "UndecodableIsSetAside", needs: []need{putting, failures}, check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			k.put(Document{Event: event("bad"), Undecodable: true})
			k.append("b")
			k.settleUndecodable(c, k.read(c, 3))
			k.expect(k.takeOver("second"))
		}},
		{name: "UndecodableIsSetAsideByAScan", needs: []need{putting, failures}, check: func(k *kit) {
			k.append("a")
			k.put(Document{Event: event("bad"), Undecodable: true})
			k.append("b")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.settleUndecodable(c, k.read(c, 3))
		}},
	}
}

// parkAgain parks e with another failure.
func (k *kit) parkAgain(c core.Cursor, e core.Entry) {
	k.Helper()
	p := parked(e)
	p.Attempts, p.Failure = 9, core.Failure{Code: core.CodeCrashed, Reason: "another"}
	if err := c.Park(k.ctx, []core.Parked{p}); err != nil {
		k.Errorf("parking again: %v", err)
	}
}

// wantQueued fails unless exactly the entries with these ids are queued.
func (k *kit) wantQueued(entries []core.Entry, ids ...string) {
	k.Helper()
	want := map[string]bool{}
	for _, id := range ids {
		want[id] = true
	}
	for _, e := range entries {
		if e.Queued != want[e.Event.ID] {
			k.Errorf("%s: queued is %t", e.Event.ID, e.Queued)
		}
	}
}

// settleUndecodable expects a, an undecodable document and b, in the order of
// their commits or (a scan may not know it) with the document elsewhere.
func (k *kit) settleUndecodable(c core.Cursor, entries []core.Entry) {
	k.Helper()
	var good []core.Entry
	for _, e := range entries {
		if e.Err == nil {
			good = append(good, e)
			continue
		}
		p := parked(e)
		p.Failure = core.Failure{Code: core.CodeUndecodable, Reason: e.Err.Error()}
		if err := c.Park(k.ctx, []core.Parked{p}); err != nil {
			k.Fatalf("parking an undecodable document: %v", err)
		}
	}
	k.wantIDs(good, "a", "b")
	k.save(c, entries...)
	all := k.failed()
	if got, there := all["bad"]; !there || len(all) != 1 {
		k.Errorf("kept %+v, want the undecodable document alone", all)
	} else if got.Failure.Code != core.CodeUndecodable || got.Failure.Reason == "" {
		k.Errorf("kept with %+v, want the code %q and a reason", got.Failure, core.CodeUndecodable)
	}
}
