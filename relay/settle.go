package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// settle applies what the sink answered.
func (t *term) settle(b *batch, results []core.Result) {
	n := tallyOf(results)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	t.inFlight -= len(b.leases)
	if t.over {
		return // another holder may be at work: forget everything
	}
	now := time.Now()
	t.passGate(now, n)
	for _, r := range b.runs {
		t.settleRun(b, r, results, n, now)
	}
	t.advance()
	t.setAlarm(now)
	t.room.Signal()
}

// settleRun applies the results of one key's part of a call. The lock is held.
func (t *term) settleRun(b *batch, r run, results []core.Result, n tally, now time.Time) {
	k := r.key
	k.inCall = false
	failed := -1 // the first of the run that was not delivered
	for j := r.first; j < r.first+r.count; j++ {
		s := t.win.at(b.places[j])
		switch results[j].Outcome {
		case core.Delivered:
			t.win.settle(b.places[j])
			continue
		case core.Unknown:
			s.redelivered = true
			s.unknowns++
		}
		if failed < 0 {
			failed = j
		}
	}
	t.relink(k, b.places[r.first:r.first+r.count])
	if failed < 0 {
		t.unblock(k)
		t.keys.resume(k)
		return
	}
	if failed > r.first {
		t.unblock(k) // it got on
	}
	t.settleFailed(k, &results[failed], len(b.leases), n, now)
}

// relink makes the first unsettled entry of a run the key's head again. The
// run was taken from the key's head on.
func (t *term) relink(k *key, places []uint64) {
	next := t.win.at(places[len(places)-1]).next
	if next == none {
		k.tail = none
	}
	for j := len(places) - 1; j >= 0; j-- {
		s := t.win.at(places[j])
		if s.settled {
			k.count--
			continue
		}
		s.next = next
		next = places[j]
		if k.tail == none {
			k.tail = places[j]
		}
	}
	k.head = next
}

// settleFailed decides what becomes of a key whose head was not delivered. The
// lock is held.
func (t *term) settleFailed(k *key, r *core.Result, calledWith int, n tally, now time.Time) {
	s := t.win.at(k.head)
	reason := reasonOf(r)
	// Whether it is this event that doesn't get through, or the sink: others
	// were delivered in the same call, or, when it was sent alone, since the
	// last time that it did not get through.
	othersPass := n[core.Delivered] > 0 || calledWith == 1 && s.asked && t.passes > s.passes
	switch r.Outcome {
	case core.Rejected:
		s.attempts++
		t.setAside(k, core.Failure{Code: core.CodeRejected, Reason: reason.Error()})
		return
	case core.Refused:
		t.refuse(k, s, reason, now)
	case core.Unknown:
		if s.unknowns > 1 {
			s.alone = true
		}
		if !othersPass || !t.suspect(k, s, reason, now) {
			t.postpone(k, s, reason, now)
		}
		if !othersPass { // it may be the sink: be there when it is back
			t.keys.hasten(k, now.Add(t.route.cfg.OutageBackoff.Max))
		}
	case core.Unavailable:
		if !othersPass {
			// It may have taken the whole call down, more than once.
			s.alone = s.alone || s.asked && t.passes > s.passes
			t.shutGate(now, reason)
			t.keys.resume(k)
		} else if !t.suspect(k, s, reason, now) {
			t.postpone(k, s, reason, now)
		}
	case core.Throttled:
		t.throttle(now, r)
		t.keys.resume(k)
	default: // NotAttempted, also where a sink forgot to answer
		switch {
		case !othersPass:
			if n[core.NotAttempted] == calledWith {
				t.shutGate(now, reason)
			}
			t.keys.resume(k)
		case s.naks < timesSuspect:
			s.naks++
			t.keys.resume(k)
		default: // others are attempted again and again, this one is not
			t.postpone(k, s, reason, now)
		}
	}
	s.asked, s.passes = true, t.passes
}

// timesSuspect is how often an event alone must not get through, while others
// do, before that counts as a refusal.
const timesSuspect = 3

// suspect notes that the event did not get through although others did. The
// third time it is refused, and true is returned. From the first on it is sent
// in calls of its own. The lock is held.
func (t *term) suspect(k *key, s *slot, reason error, now time.Time) bool {
	s.alone = true
	s.suspects++
	if s.suspects < timesSuspect {
		return false
	}
	t.refuse(k, s, reason, now)
	return true
}

// refuse counts an attempt of the key's head and lets the key wait, so that its
// order is kept and the others go on. This is where a route that parks hands
// the event and its key's followers to the queue instead. The lock is held.
func (t *term) refuse(k *key, s *slot, reason error, now time.Time) {
	s.attempts++
	t.postpone(k, s, reason, now)
}

// postpone lets the key wait, each time longer. The lock is held.
func (t *term) postpone(k *key, s *slot, reason error, now time.Time) {
	if k.wait == nil {
		k.wait = &wait{waits: t.route.cfg.Backoff.start(), place: -1}
	}
	delay := k.wait.waits.next()
	k.wait.reason = reason
	t.route.blocked.failed(k.name, reason,
		"key", short(k.name), "event", short(s.entry.Event.ID), "type", short(s.entry.Event.Type), "retry_in", delay)
	t.keys.postpone(k, now.Add(delay))
}

// unblock ends what an earlier failure of the key began. The lock is held.
func (t *term) unblock(k *key) {
	if k.wait != nil {
		k.wait = nil
		t.route.blocked.ok(k.name)
	}
}

// reasonOf is why an event was not delivered.
func reasonOf(r *core.Result) error {
	if r.Err != nil {
		return r.Err
	}
	return fmt.Errorf("%w: %v", errNoReason, r.Outcome)
}

var errNoReason = errors.New("the sink gave no reason")
