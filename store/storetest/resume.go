package storetest

import (
	"fmt"
	"slices"

	"github.com/gooutbox/outbox/core"
)

// mixed commits six events, the third to the fifth in one transaction.
func (k *kit) mixed(prefix string) []string {
	k.Helper()
	ids := make([]string, 6)
	events := make([]core.Event, 6)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i+1)
		events[i] = event(ids[i])
	}
	k.commit(events[0])
	k.commit(events[1])
	k.commit(events[2:5]...)
	k.commit(events[5])
	return ids
}

func resumeRules() []rule {
	var rules []rule
	// Each prefix: what was saved doesn't come again, the rest does.
	for settled := range 7 {
		rules = append(rules, rule{name: fmt.Sprintf("AtExactly%dOf6", settled), check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			entries := k.read(c, len(ids))
			k.save(c, entries[:settled]...)
			next := k.takeOver("second")
			if settled > 0 {
				if got, want := next.Term().Position, entries[settled-1].Mark.Position(); got != want {
					k.Errorf("the position is %v, want that of %s, %v", got, ids[settled-1], want)
				}
			}
			k.expect(next, ids[settled:]...)
		}})
	}
	// Half of the events is stored before the cursor begins and half comes
	// later: wherever the first term ended, some may repeat, and none is lost.
	for _, settled := range []int{0, 1, 4, 6, 7, 10, 12} {
		rules = append(rules, rule{name: fmt.Sprintf("FirstScanAt%dOf12", settled), check: func(k *kit) {
			ids := k.mixed("stored-")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			entries := k.read(c, 6)
			ids = append(ids, k.mixed("later-")...)
			entries = append(entries, k.read(c, 6)...)
			k.wantIDs(entries, ids...)
			k.save(c, entries[:settled]...)
			next := k.takeOver("second")
			k.wantFresh(k.readUntil(next, k.end(), false), ids[:settled], ids[settled:]...)
		}})
	}
	return append(rules,
		rule{name: "SeveralSavesOfOneTerm", check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			entries := k.read(c, len(ids))
			k.save(c, entries[:1]...)
			k.save(c, entries[1:3]...)
			k.save(c, entries[3:4]...)
			k.expect(k.takeOver("second"), ids[4:]...)
		}},
		rule{name: "ReadAheadIsNotSaved", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			entries := k.read(c, 2)
			k.append("c")
			k.read(c, 1)
			k.save(c, entries[0])
			k.expect(k.takeOver("second"), "b", "c")
		}},
		rule{name: "ManyTermsLoseNothing", check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			for i := range ids {
				entries := k.read(c, len(ids)-i)
				k.wantIDs(entries, ids[i:]...)
				k.save(c, entries[0])
				c = k.takeOver(fmt.Sprintf("owner-%d", i))
			}
			k.expect(c)
		}},
		rule{name: "ReachedPlaceLosesNothing", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			k.save(c, k.read(c, 1)...)
			reached := k.idle(c)
			k.append("b") // after the place was reached, before it is saved
			if reached != nil {
				if err := c.Save(k.ctx, []core.Mark{reached}); err != nil {
					k.Fatalf("saving the place reached: %v", err)
				}
			}
			k.expect(k.takeOver("second"), "b")
		}},
		rule{name: "CaughtUpScanIsNotRepeated", check: func(k *kit) {
			ids := k.mixed("stored-")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.wantIDs(k.catchUp(c), ids...)
			k.append("later")
			k.expect(k.takeOver("second"), "later")
		}},
		rule{name: "RecoveryLosesNothing", needs: []need{losing}, check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			entries := k.read(c, len(ids))
			k.save(c, entries[:4]...)
			k.loseToken(c)
			k.append("meanwhile")
			next := k.acquire(k.other, core.AcquireRequest{Owner: "second"})
			k.append("after")
			got := k.readUntil(next, k.end(), false)
			k.wantFresh(got, ids[:4], "e5", "e6", "meanwhile", "after")
		}},
		rule{name: "RecoveryCutShortLosesNothing", needs: []need{losing}, check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			k.save(c, k.read(c, len(ids))[:2]...)
			k.loseToken(c)
			next := k.acquire(k.other, core.AcquireRequest{Owner: "second"})
			var some []core.Entry
			for len(some) == 0 {
				b, err := next.Read(k.ctx, core.ReadLimit{Events: 3})
				if err != nil {
					k.Fatal(err)
				}
				some = b.Entries
			}
			k.save(next, some...)
			settled := slices.Concat(ids[:2], idsOf(some))
			last := k.takeOver("third")
			k.wantFresh(k.readUntil(last, k.end(), false), settled, difference(ids, settled)...)
		}},
		rule{name: "RecoveryIsOverOnce", needs: []need{losing}, check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			k.save(c, k.read(c, 2)...)
			k.loseToken(c)
			next := k.acquire(k.other, core.AcquireRequest{Owner: "second"})
			k.catchUp(next)
			k.append("c")
			k.expect(k.takeOver("third"), "c")
		}},
	)
}

// idle reads until nothing comes and returns the place reached, if the store
// gave one.
func (k *kit) idle(c core.Cursor) core.Mark {
	k.Helper()
	for {
		b, err := c.Read(k.ctx, core.ReadLimit{})
		switch {
		case err != nil:
			k.Fatalf("reading an idle log: %v", err)
		case len(b.Entries) > 0:
			k.Fatalf("read %v from an idle log", idsOf(b.Entries))
		default:
			return b.Reached
		}
	}
}

// difference returns the ids that are not among the settled ones.
func difference(ids, settled []string) []string {
	var rest []string
	for _, id := range ids {
		if !slices.Contains(settled, id) {
			rest = append(rest, id)
		}
	}
	return rest
}
