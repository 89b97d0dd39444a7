package relay_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestOldEventsAreRemovedByTheHolderAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		hours := func(c *relay.Config) { c.Retention = 3 * time.Hour }
		holder, standby := k.start(hours), k.start(hours)
		pass(3*time.Hour - time.Minute)
		equal(t, "removed before their time", k.total(), 2)
		pass(10 * time.Minute)
		equal(t, "kept after it", k.total(), 0)
		// Four to six minutes between two rounds of one process.
		between(t, "rounds", time.Duration(k.faults.count(memory.OpClean)), 30, 48)
		standby.stop()
		holder.stop()
	})
}

// total counts the events in the log.
func (k *kit) total() int {
	k.t.Helper()
	c, err := k.store.Acquire(k.t.Context(), core.AcquireRequest{Name: "count", Owner: "x"})
	if err != nil {
		k.t.Fatal(err)
	}
	b, err := c.Read(k.t.Context(), core.ReadLimit{})
	if err != nil {
		k.t.Fatal(err)
	}
	marks := make([]core.Mark, 0, len(b.Entries)+1)
	for _, e := range b.Entries {
		marks = append(marks, e.Mark)
	}
	if b.Reached != nil {
		marks = append(marks, b.Reached)
	}
	if err := c.Save(k.t.Context(), marks); err != nil { // it must not hold the cleaner up
		k.t.Fatal(err)
	}
	return len(b.Entries)
}

func TestARouteThatIsBehindKeepsItsEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Unavailable) }
		k.append("a1")
		r := k.start(func(c *relay.Config) { c.Retention = time.Hour })
		pass(12 * time.Hour)
		equal(t, "events beyond the saved position", k.unsettled(), 1)
		k.sink.answers(nil)
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1")
		r.stop()
	})
}

func TestNegativeRetentionKeepsEventsForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start(func(c *relay.Config) { c.Retention = -1 })
		pass(12 * time.Hour)
		equal(t, "rounds", k.faults.count(memory.OpClean), 0)
		r.stop()
	})
}

func TestACleanerThatFailsIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.faults.set(errors.New("no rights"), memory.OpClean)
		r := k.start()
		pass(24 * time.Hour)
		equal(t, "warnings", k.log.all(slog.LevelWarn), 1)
		k.faults.set(nil, memory.OpClean)
		pass(10 * time.Minute)
		equal(t, "lines when it works again", k.log.with(slog.LevelInfo, "removing old events works again"), 1)
		r.stop()
	})
}

func TestACursorThatNoOneRunsIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		if _, err := k.store.Acquire(t.Context(), core.AcquireRequest{Name: "old", Owner: "gone"}); err != nil {
			t.Fatal(err)
		}
		k.append("a1")
		r := k.start(func(c *relay.Config) { c.Retention = time.Hour })
		pass(24 * time.Hour)
		equal(t, "warnings", k.log.with(slog.LevelWarn, "keeps events from being removed"), 1)
		r.stop()
	})
}
