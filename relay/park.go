package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// park is an entry that becomes a job: failed, or to be tried again.
type park struct {
	key     *key // nil if the entry holds none up
	line    *line
	place   uint64
	state   core.JobState
	delay   time.Duration
	failure core.Failure
}

// setAside takes the head off the key, to be written as failed. The key goes on
// when that is durable, or is held, as the route's policy says. The lock is held.
func (t *term) setAside(k *key, failure core.Failure) {
	if t.holds(k, failure) {
		t.tellHeld(k, &t.win.at(k.head).entry.Event, failure)
		t.line(t.divert(k), park{state: core.JobFailed, failure: failure})
		t.follow(k)
		return
	}
	i := k.head
	k.head = t.win.at(i).next
	k.count--
	k.parking = true
	t.unblock(k)
	t.park(park{key: k, place: i, state: core.JobFailed, failure: failure})
}

// holds tells whether a failure holds its key. An event of unknown outcome may
// have arrived, and holds nothing.
func (t *term) holds(k *key, f core.Failure) bool {
	return t.route.cfg.OnFailure == Hold && k != nil && k.name != "" && f.Code != core.CodeUnknown
}

// tellHeld tells people that the key is held by an event that failed.
func (t *term) tellHeld(k *key, e *core.Event, f core.Failure) {
	t.route.blocked.failed(k.name, fmt.Errorf("it failed for good, and holds its key until it is retried or discarded: %s", f.Reason),
		"key", short(k.name), "event", short(e.ID), "type", short(e.Type))
}

// park has the entry written as a job. The lock is held.
func (t *term) park(p park) {
	t.parks = append(t.parks, p)
	t.parking++
	t.aside.Signal()
}

// parkBatch bounds one write of failed events, in events and bytes.
const (
	parkBatch      = 100
	parkBatchBytes = 4 << 20
)

// setAsideAll writes jobs until the term is over or finished.
func (t *term) setAsideAll() {
	for {
		parks, entries := t.nextParks()
		if len(parks) == 0 {
			return
		}
		crash.Here("relay.parking")
		if !t.persist(opPark, func(ctx context.Context) error { return t.cursor.Park(ctx, entries) }) {
			return
		}
		crash.Here("relay.parked")
		t.parksDone(parks, entries)
		t.tellParked(entries)
	}
}

// tellParked tells people what was set aside. No lock is held.
func (t *term) tellParked(entries []core.Parked) {
	ready := 0
	for i := range entries {
		p := &entries[i]
		if p.State == core.JobReady {
			ready++
			continue
		}
		e := &p.Entry.Event
		t.route.failed(t.alive, FailedJob{
			ID: p.ID, EventID: e.ID, Key: e.AggregateID, Type: e.Type, Tenant: e.Tenant, Attempts: p.Attempts, Failure: p.Failure,
		})
	}
	t.route.metrics.parked(ready)
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
		s := t.win.at(p.place)
		if i > 0 && bytes+s.entry.Size > parkBatchBytes {
			break
		}
		bytes += s.entry.Size
		entries = append(entries, core.Parked{
			Entry: s.entry, Sink: t.route.cfg.Sink, State: p.state, Delay: p.delay, Failure: p.failure, Holds: t.holds(p.key, p.failure),
			Attempts: s.attempts, MaxAttempts: t.route.cfg.MaxAttempts, Redelivered: s.redelivered,
		})
	}
	parks := t.parks[:len(entries):len(entries)]
	t.parks = t.parks[len(entries):]
	return parks, entries
}

// parksDone settles what is durably a job and lets its keys go on.
func (t *term) parksDone(parks []park, entries []core.Parked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for i, p := range parks {
		if p.line != nil {
			t.join(p, &entries[i], now)
		}
		t.win.settle(p.place)
		t.parking--
		if p.key != nil && p.line == nil {
			p.key.parking = false
			t.resume(p.key)
		}
	}
	t.advance()
	t.room.Signal()
	t.work.Signal()
	t.dirty.Signal() // the saver may be waiting for the last of them
}

// join makes a parked event one of its line's jobs. The lock is held.
func (t *term) join(p park, e *core.Parked, now time.Time) {
	l := p.line
	l.pending = l.pending[1:]
	t.lines.open--
	j := &job{tries: t.win.at(p.place).tries, due: now.Add(p.delay), kind: e.Entry.Event.Type, reason: e.Failure.Reason, open: core.OpenJob{
		ID: e.ID, EventID: e.Entry.Event.ID, Key: e.Entry.Event.AggregateID, Position: e.Entry.Mark.Position(),
		State: p.state, Attempts: e.Attempts, Ref: e.Ref,
	}}
	t.touch(j)
	t.insert(l, j)
	if e.Ref == nil {
		t.look()
	}
	t.arrange(l)
}
