package storetest

import (
	"github.com/gooutbox/outbox/core"
)

// successions are the ways in which a term ends without its holder's doing.
var successions = []struct {
	name string
	next func(*kit) core.Cursor
}{
	{"TheSameOwner", func(k *kit) core.Cursor {
		return k.acquire(k.store, core.AcquireRequest{Owner: "first"})
	}},
	{"AnotherOwner", func(k *kit) core.Cursor { return k.takeOver("second") }},
}

func fenceRules() []rule {
	var rules []rule
	for _, s := range successions {
		rules = append(rules, rule{name: "RisesFor" + s.name, check: func(k *kit) {
			fence := k.cursor().Term().Fence
			for range 3 {
				next := s.next(k).Term().Fence
				if next <= fence {
					k.Errorf("the fence went from %d to %d", fence, next)
				}
				fence = next
			}
		}})
		for _, w := range fencedWrites() {
			rules = append(rules, rule{
				name:  "Stale" + w.name + "Before" + s.name + "WritesNothing",
				check: func(k *kit) { checkStale(k, w, s.next) },
			})
		}
		rules = append(rules, rule{name: "StaleReleaseBefore" + s.name + "FreesNothing", check: func(k *kit) {
			stale := k.cursor()
			c := s.next(k)
			revision := k.held().Revision
			if err := stale.Release(k.ctx); err != nil {
				k.Logf("releasing a lost lease: %v", err) // either answer will do
			}
			if k.held().Revision != revision {
				k.Error("the release of a lost lease wrote to the cursor")
			}
			if err := c.Renew(k.ctx); err != nil {
				k.Errorf("renewing after another's release: %v", err)
			}
		}})
	}
	return rules
}

// checkStale: a holder that woke up after its cursor changed hands is told, and
// leaves no trace.
func checkStale(k *kit, w fencedWrite, next func(*kit) core.Cursor) {
	stale := k.cursor()
	k.append("a", "b")
	entries := k.read(stale, 2)
	k.save(stale, entries[0])
	saved := entries[0].Mark.Position()
	holder := next(k)
	revision := k.held().Revision

	k.wantFenced(w.name+" of a stale holder", w.write(k.ctx, stale, entries[1]))

	if k.held().Revision != revision {
		k.Error("the stale write changed the cursor")
	}
	if err := holder.Renew(k.ctx); err != nil {
		k.Errorf("the holder can't go on: %v", err)
	}
	last := k.takeOver("third")
	term := last.Term()
	if term.Position != saved {
		k.Errorf("the position is %v, want %v as the last rightful save left it", term.Position, saved)
	}
	if term.SuspectCount != 0 {
		k.Errorf("%q was noted as suspect", term.SuspectID)
	}
	if k.h.Failed != nil && len(k.failed()) != 0 {
		k.Errorf("%d events were parked", len(k.failed()))
	}
	for _, e := range k.expect(last, "b") {
		if e.Queued {
			k.Errorf("%s is marked as queued", e.Event.ID)
		}
	}
}
