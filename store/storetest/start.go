package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

func startRules() []rule {
	begin := func(k *kit, start core.Start) core.Cursor {
		return k.acquire(k.store, core.AcquireRequest{Owner: "first", Start: start})
	}
	return []rule{
		{name: "BeginningReadsWhatIsStored", check: func(k *kit) {
			k.append("a", "b")
			c := begin(k, core.Start{})
			k.append("c")
			k.expect(c, "a", "b", "c")
		}},
		{name: "NowLeavesOutWhatIsStored", check: func(k *kit) {
			k.append("a", "b")
			c := begin(k, core.Start{Now: true})
			k.append("c")
			k.expect(c, "c")
		}},
		{name: "NowHoldsFromTheFirstAcquisitionOn", check: func(k *kit) {
			k.append("a")
			begin(k, core.Start{Now: true})
			k.append("b") // nobody has read yet when the first term ends
			k.expect(k.takeOver("second"), "b")
		}},
		{name: "AtLeavesOutOlderEvents", needs: []need{putting}, check: func(k *kit) {
			k.put(Document{Event: event("old"), Age: 3 * time.Hour}, Document{Event: event("young"), Age: time.Hour})
			k.append("a")
			c := begin(k, core.Start{At: time.Now().Add(-2 * time.Hour)})
			k.append("b")
			k.expectStored(c, "young", "a", "b")
		}},
		{name: "AtHoldsForLaterTerms", needs: []need{putting}, check: func(k *kit) {
			k.put(Document{Event: event("old"), Age: 3 * time.Hour}, Document{Event: event("young"), Age: time.Hour})
			begin(k, core.Start{At: time.Now().Add(-2 * time.Hour)})
			k.expectStored(k.takeOver("second"), "young")
		}},
		{name: "PublishedEventsAreLeftOut", needs: []need{putting}, check: func(k *kit) {
			k.put(Document{Event: event("done"), Published: true}, Document{Event: event("open")})
			c := begin(k, core.Start{})
			k.append("a")
			k.expectStored(c, "open", "a")
		}},
		{name: "PublishedEventsAreReadOnRequest", needs: []need{putting, cursors}, check: func(k *kit) {
			k.put(Document{Event: event("done"), Published: true}, Document{Event: event("open")})
			c := begin(k, core.Start{IncludePublished: true})
			k.expectStored(c, "done", "open")
		}},
		{name: "CursorIsCreatedOnce", check: func(k *kit) {
			k.append("a")
			begin(k, core.Start{Now: true})
			k.append("b")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first", Start: core.Start{IncludePublished: true}})
			k.expect(c, "b")
		}},
		{name: "FirstTermIsBlank", check: func(k *kit) {
			k.append("a")
			term := begin(k, core.Start{}).Term()
			if term.Fence == 0 {
				k.Error("the fence is 0")
			}
			if want := (core.Term{Fence: term.Fence}); term != want {
				k.Errorf("the first term is %+v, want %+v", term, want)
			}
		}},
		{name: "CursorsAreIndependent", needs: []need{cursors}, check: func(k *kit) {
			one := k.acquire(k.store, core.AcquireRequest{Name: "one", Owner: "a", Start: core.Start{Now: true}})
			two := k.acquire(k.other, core.AcquireRequest{Name: "two", Owner: "b", Start: core.Start{Now: true}})
			k.append("a", "b", "c")
			k.save(one, k.read(one, 3)...)
			k.save(two, k.read(two, 3)[:1]...)
			one = k.takeOverNamed("one", "b")
			two = k.takeOverNamed("two", "a")
			k.append("d")
			k.wantIDs(k.read(one, 1), "d")
			k.wantIDs(k.read(two, 3), "b", "c", "d")
		}},
		{name: "NameAndOwnerAreRequired", check: func(k *kit) {
			for _, req := range []core.AcquireRequest{{Name: "", Owner: "me"}, {Name: cursorName, Owner: ""}} {
				if _, err := k.store.Acquire(k.ctx, req); err == nil {
					k.Errorf("acquired with name %q and owner %q", req.Name, req.Owner)
				}
			}
		}},
	}
}
