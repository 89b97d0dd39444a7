package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

const retention = time.Hour

// putOld stores events that are older than the retention by a day.
func (k *kit) putOld(n int) []string {
	k.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("old-%d", i))
		k.put(Document{Event: event(ids[i]), Age: 24*time.Hour - time.Duration(i)*time.Minute})
	}
	return ids
}

func (k *kit) clean(cursors ...string) core.CleanResult {
	k.Helper()
	got, err := k.store.Clean(k.ctx, core.CleanRequest{Retention: retention, Cursors: cursors})
	if err != nil {
		k.Fatalf("cleaning: %v", err)
	}
	return got
}

func cleanRules() []rule {
	return []rule{
		{name: "RemovesWhatIsOldAndSettled", needs: []need{putting}, check: func(k *kit) {
			k.putOld(5)
			k.append("a")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.catchUp(c)
			if got := k.clean(cursorName); got.Removed != 5 || got.HeldBy != "" {
				k.Errorf("removed %d, held by %q, want 5, held by none", got.Removed, got.HeldBy)
			}
			if got := k.clean(cursorName); got.Removed != 0 {
				k.Errorf("removed %d more, want 0", got.Removed)
			}
			k.wantLog("a")
		}},
		{name: "KeepsWhatIsYoungerThanTheRetention", check: func(k *kit) {
			k.append("a", "b")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.catchUp(c)
			if got := k.clean(cursorName); got.Removed != 0 || got.HeldBy != "" {
				k.Errorf("removed %d, held by %q, want 0, held by none", got.Removed, got.HeldBy)
			}
			k.wantLog("a", "b")
		}},
		{name: "KeepsWhatAnUnstartedReaderNeeds", needs: []need{putting}, check: func(k *kit) {
			ids := k.putOld(5)
			k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			if got := k.clean(cursorName); got.Removed != 0 || !k.names(got, cursorName) {
				k.Errorf("removed %d, held by %q, want 0, held by %q", got.Removed, got.HeldBy, cursorName)
			}
			k.expectStored(k.takeOver("second"), ids...)
		}},
		{name: "KeepsWhatALaggingCursorNeeds", needs: []need{putting}, check: func(k *kit) {
			ids := k.putOld(8)
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			entries := k.read(c, 8)
			k.wantSameIDs(idsOf(entries), ids)
			k.save(c, entries[:3]...)
			if got := k.clean(cursorName); got.Removed > 3 || !k.names(got, cursorName) {
				k.Errorf("removed %d, held by %q, want 3 at most, held by %q", got.Removed, got.HeldBy, cursorName)
			}
			k.readAll(k.takeOver("second"), idsOf(entries[3:]))
		}},
		{name: "KeepsWhatAnotherCursorNeeds", needs: []need{putting, cursors}, check: func(k *kit) {
			ids := k.putOld(5)
			k.catchUp(k.acquire(k.store, core.AcquireRequest{Owner: "first"}))
			slow := k.acquire(k.store, core.AcquireRequest{Name: "slow", Owner: "first"})
			if got := k.clean(cursorName); got.Removed != 0 || got.HeldBy != "slow" {
				k.Errorf("removed %d, held by %q, want 0, held by \"slow\"", got.Removed, got.HeldBy)
			}
			k.expectStored(slow, ids...)
		}},
		{name: "WaitsForCursorsThatMustBe", needs: []need{putting}, check: func(k *kit) {
			k.putOld(5)
			k.catchUp(k.acquire(k.store, core.AcquireRequest{Owner: "first"}))
			if got := k.clean(cursorName, "planned"); got.Removed != 0 || got.HeldBy != "planned" {
				k.Errorf("removed %d, held by %q, want 0, held by \"planned\"", got.Removed, got.HeldBy)
			}
		}},
		{name: "KeepsFailedEvents", needs: []need{putting, failures}, check: func(k *kit) {
			ids := k.putOld(2)
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			k.park(c, k.read(c, 2)[0])
			k.append("a")
			k.catchUp(c)
			k.clean(cursorName)
			if got := k.failed()[ids[0]].Event; !bytes.Equal(got.Payload, event(ids[0]).Payload) {
				k.Errorf("the failed event's payload is %q", got.Payload)
			}
		}},
		{name: "NeedsARetention", check: func(k *kit) {
			if _, err := k.store.Clean(k.ctx, core.CleanRequest{}); err == nil {
				k.Error("cleaned without a retention")
			}
		}},
	}
}

// names tells whether the result names the cursor that kept events. A store
// that keeps those without a mark need not.
func (k *kit) names(got core.CleanResult, cursor string) bool {
	return got.HeldBy == cursor || k.h.Traits.OneCursor && got.HeldBy == ""
}

// wantLog fails unless the log holds exactly these events.
func (k *kit) wantLog(want ...string) {
	k.Helper()
	if k.h.Traits.OneCursor {
		return // nobody else can look
	}
	if got := k.census(); !slices.Equal(got, want) {
		k.Errorf("the log holds %v, want %v", got, want)
	}
}
