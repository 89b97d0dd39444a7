package storetest

import (
	"fmt"

	"github.com/gooutbox/outbox/core"
)

func orderRules() []rule {
	return []rule{
		{name: "CommitsAreReadInTheirOrder", check: func(k *kit) {
			c := k.cursor()
			var ids []string
			for i := range 30 {
				ids = append(ids, fmt.Sprintf("e-%02d", (i*7)%30)) // not in the order of the ids
			}
			k.append(ids...)
			k.expect(c, ids...)
		}},
		{name: "StoredEventsAreReadInTheirOrder", check: func(k *kit) {
			var ids []string
			for i := range 30 {
				ids = append(ids, fmt.Sprintf("e-%02d", (i*7)%30))
			}
			k.append(ids...)
			k.expect(k.acquire(k.store, core.AcquireRequest{Owner: "first"}), ids...)
		}},
		{name: "SmallBatchesKeepTheOrder", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b", "c")
			k.commit(event("d"), event("e"), event("f"))
			var got []core.Entry
			for len(got) < 6 {
				b, err := c.Read(k.ctx, core.ReadLimit{Events: 2})
				if err != nil {
					k.Fatal(err)
				}
				got = append(got, b.Entries...)
			}
			k.wantIDs(got, "a", "b", "c", "d", "e", "f")
		}},
		{name: "PositionsRise", check: func(k *kit) {
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.append("a", "b")
			k.commit(event("c"), event("d"), event("e"))
			last := core.Position{}
			check := func(e core.Entry) {
				if p := e.Mark.Position(); p.Compare(last) <= 0 {
					k.Errorf("%s has the position %v after %v", e.Event.ID, p, last)
				} else {
					last = p
				}
			}
			for _, e := range k.read(c, 5) {
				check(e)
			}
			k.append("f")
			check(k.read(c, 1)[0])
		}},
		{name: "LateCommitIsReadByTheSameTerm", needs: []need{transactions, writers}, check: func(k *kit) {
			c := k.cursor()
			late := k.openTransaction(event("late"))
			k.append("early")
			k.save(c, k.read(c, 1)...)
			if err := late.commit(); err != nil {
				k.Fatal(err)
			}
			k.expect(c, "late")
		}},
		{name: "LateCommitIsReadByTheNextTerm", needs: []need{transactions, writers}, check: func(k *kit) {
			c := k.cursor()
			late := k.openTransaction(event("late"))
			k.append("early")
			k.save(c, k.read(c, 1)...)
			if err := late.commit(); err != nil {
				k.Fatal(err)
			}
			k.expect(k.takeOver("second"), "late")
		}},
		{name: "LateCommitIsReadAfterRecovery", needs: []need{transactions, writers, losing}, check: func(k *kit) {
			c := k.cursor()
			late := k.openTransaction(event("late"))
			k.append("early")
			k.save(c, k.read(c, 1)...)
			k.loseToken(c)
			if err := late.commit(); err != nil {
				k.Fatal(err)
			}
			c = k.acquire(k.other, core.AcquireRequest{Owner: "second"})
			k.wantFresh(k.readUntil(c, k.end(), false), []string{"early"}, "late")
		}},
		{name: "LateCommitOfTheFirstScanIsRead", needs: []need{transactions, writers}, check: func(k *kit) {
			late := k.openTransaction(event("late"))
			k.append("early")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.wantIDs(k.read(c, 1), "early")
			if err := late.commit(); err != nil {
				k.Fatal(err)
			}
			k.expect(c, "late")
		}},
		{name: "KeysKeepTheirCommitOrder", needs: []need{transactions, counting}, check: func(k *kit) {
			c := k.cursor()
			w := k.startWorkload(workload{workers: 6, each: 15, keys: 3})
			w.wait()
			l := newLedger(k)
			for !l.complete(w.committed()) {
				l.take(k.readSome(c))
			}
			k.expect(c)
		}},
		{name: "StoredKeysKeepTheirCommitOrder", needs: []need{transactions, counting}, check: func(k *kit) {
			w := k.startWorkload(workload{workers: 6, each: 15, keys: 3})
			w.wait()
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			l := newLedger(k)
			for !l.complete(w.committed()) {
				l.take(k.readSome(c))
			}
			k.expect(c)
		}},
	}
}

// readSome returns what one Read brings.
func (k *kit) readSome(c core.Cursor) []core.Entry {
	k.Helper()
	b, err := c.Read(k.ctx, core.ReadLimit{})
	if err != nil {
		k.Fatalf("reading: %v", err)
	}
	return b.Entries
}

// wantFresh fails unless, repeats and the settled ones dropped, exactly these
// events were read, in this order.
func (k *kit) wantFresh(entries []core.Entry, settled []string, want ...string) {
	k.Helper()
	known := map[string]bool{}
	for _, id := range settled {
		known[id] = true
	}
	var fresh []core.Entry
	for _, e := range onlyNew(entries) {
		if !known[e.Event.ID] {
			fresh = append(fresh, e)
		}
	}
	k.wantIDs(fresh, want...)
}

// loseToken ends the term and makes the cursor's place useless.
func (k *kit) loseToken(c core.Cursor) {
	k.Helper()
	if err := c.Release(k.ctx); err != nil {
		k.Fatalf("releasing: %v", err)
	}
	if err := k.h.LoseToken(k.ctx, k.store, cursorName); err != nil {
		k.Fatalf("losing the token: %v", err)
	}
}
