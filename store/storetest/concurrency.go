package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/gooutbox/outbox/core"
)

func concurrencyRules() []rule {
	heavy := workload{workers: 8, each: 25, keys: 5}
	return []rule{
		{name: "OneReaderSeesAllOnce", needs: []need{transactions, counting}, check: func(k *kit) {
			c := k.cursor()
			w := k.startWorkload(heavy)
			l := newLedger(k)
			for !w.over() || !l.complete(w.committed()) {
				entries := k.readSome(c)
				l.take(entries)
				k.save(c, entries...)
			}
			k.expect(c)
		}},
		// The first scan meets transactions that commit while it runs.
		{name: "FirstScanBesideAppendersSeesAllOnce", needs: []need{transactions, counting}, check: func(k *kit) {
			w := k.startWorkload(heavy)
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			l := newLedger(k)
			for !w.over() || !l.complete(w.committed()) {
				l.take(k.readSome(c))
			}
			k.expect(c)
		}},
		// Each term settles a part of what it read, and the next goes on there.
		{name: "TakeOversLoseNothing", needs: []need{transactions, counting}, check: func(k *kit) {
			c := k.cursor()
			w := k.startWorkload(heavy)
			l := newLedger(k)
			for term := 0; !w.over() || !l.complete(w.committed()); term++ {
				entries := k.readSome(c)
				settled := entries[:(len(entries)+1)/2]
				l.take(settled)
				k.save(c, settled...)
				if term%3 == 0 {
					c = k.takeOver(fmt.Sprintf("owner-%d", term))
					continue
				}
				rest := entries[len(settled):]
				l.take(rest)
				k.save(c, rest...)
			}
			k.expect(k.takeOver("last"))
		}},
		{name: "OneOfManyStandbysGetsIn", check: func(k *kit) {
			k.cursor()
			revision := k.held().Revision
			var mu sync.Mutex
			var winners []core.Cursor
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					c, err := k.other.Acquire(k.ctx, core.AcquireRequest{
						Name: cursorName, Owner: fmt.Sprintf("standby-%d", i), Lease: long, Unchanged: revision,
					})
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						winners = append(winners, c)
					}
				})
			}
			all.Wait()
			if len(winners) != 1 {
				k.Errorf("%d standbys took over at once, want 1", len(winners))
			}
			for _, c := range winners {
				if err := c.Release(context.WithoutCancel(k.ctx)); err != nil {
					k.Errorf("releasing: %v", err)
				}
			}
		}},
		{name: "WritesOfOneHolderDoNotFenceEachOther", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			e := k.read(c, 1)[0]
			var all sync.WaitGroup
			for _, w := range fencedWrites() {
				for range 4 {
					all.Go(func() {
						if err := w.write(k.ctx, c, e); err != nil {
							k.Errorf("%s beside other writes: %v", w.name, err)
						}
					})
				}
			}
			all.Wait()
		}},
	}
}
