package relay

import (
	"context"

	"github.com/gooutbox/outbox/core"
)

// park is an entry that is set aside.
type park struct {
	key     *key // nil if the entry holds none up
	place   uint64
	failure core.Failure
	tries   int
}

// setAside takes the head off the key, to be written as failed. The key goes
// on when that is durable. The lock is held.
func (t *term) setAside(k *key, failure core.Failure) {
	i := k.head
	s := t.win.at(i)
	k.head = s.next
	k.count--
	k.parking = true
	t.unblock(k)
	t.park(k, i, failure)
}

// park has the entry written as failed. The lock is held.
func (t *term) park(k *key, i uint64, failure core.Failure) {
	t.parks = append(t.parks, park{key: k, place: i, failure: failure, tries: t.win.at(i).attempts})
	t.parking++
	t.aside.Signal()
}

// parkBatch bounds one write of failed events, in events and bytes.
const (
	parkBatch      = 100
	parkBatchBytes = 4 << 20
)

// setAsideAll writes failed events until the term is over or finished.
func (t *term) setAsideAll() {
	for {
		parks, entries := t.nextParks()
		if len(parks) == 0 {
			return
		}
		if !t.persist(opPark, func(ctx context.Context) error { return t.cursor.Park(ctx, entries) }) {
			return
		}
		for i := range entries {
			e, f := &entries[i].Entry.Event, entries[i].Failure
			t.route.metrics.failed(f.Code)
			t.route.log.Error("an event failed for good and was set aside", "event", short(e.ID), "key", short(e.AggregateID),
				"type", short(e.Type), "code", f.Code, "reason", f.Reason)
		}
		t.parked(parks)
	}
}

// nextParks waits for events to set aside and returns none when no more will
// come.
func (t *term) nextParks() ([]park, []core.Parked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.parks) == 0 {
		if t.over || t.finishing {
			return nil, nil
		}
		t.aside.Wait()
	}
	if t.over {
		return nil, nil
	}
	var entries []core.Parked
	bytes := 0
	for i := range t.parks[:min(parkBatch, len(t.parks))] {
		p := &t.parks[i]
		e := t.win.at(p.place).entry
		if i > 0 && bytes+e.Size > parkBatchBytes {
			break
		}
		bytes += e.Size
		entries = append(entries, core.Parked{Entry: e, Sink: t.route.cfg.Sink, Attempts: p.tries, Failure: p.failure})
	}
	parks := t.parks[:len(entries):len(entries)]
	t.parks = t.parks[len(entries):]
	return parks, entries
}

// parked settles what was set aside and lets its keys go on.
func (t *term) parked(parks []park) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parks {
		t.win.settle(p.place)
		t.parking--
		if p.key != nil {
			p.key.parking = false
			t.keys.resume(p.key)
		}
	}
	t.advance()
	t.room.Signal()
	t.work.Signal()
	t.dirty.Signal() // the saver may be waiting for the last of them
}
