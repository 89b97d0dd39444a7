package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

func lagRules() []rule {
	want := func(k *kit, events int64) core.Lag {
		k.Helper()
		lag, err := k.other.Lag(k.ctx, cursorName)
		if err != nil {
			k.Fatalf("measuring the lag: %v", err)
		}
		if lag.Events != events {
			k.Errorf("the lag is %d events, want %d", lag.Events, events)
		}
		if (lag.Age > 0) != (events > 0) {
			k.Errorf("the lag is %d events and %v", lag.Events, lag.Age)
		}
		return lag
	}
	return []rule{
		{name: "CountsWhatIsNotSettled", check: func(k *kit) {
			c := k.cursor()
			want(k, 0)
			k.append("a", "b", "c", "d")
			want(k, 4)
			entries := k.read(c, 4)
			want(k, 4)
			k.save(c, entries[:3]...)
			want(k, 1)
			k.save(c, entries[3])
			want(k, 0)
		}},
		{name: "CountsFromTheBeginning", check: func(k *kit) {
			k.append("a", "b", "c")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			want(k, 3)
			k.save(c, k.read(c, 3)[:2]...)
			want(k, 1)
		}},
		{name: "AgeIsThatOfTheOldest", needs: []need{putting}, check: func(k *kit) {
			k.put(Document{Event: event("old"), Age: 3 * time.Hour}, Document{Event: event("young"), Age: time.Hour})
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			if got := want(k, 2).Age; (got - 3*time.Hour).Abs() > time.Minute {
				k.Errorf("the oldest is %v old, want about 3h", got)
			}
			k.save(c, k.read(c, 2)[0])
			if got := want(k, 1).Age; (got - time.Hour).Abs() > time.Minute {
				k.Errorf("the oldest is %v old, want about 1h", got)
			}
		}},
	}
}
