package relay

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// settle applies what the sink answered.
func (t *term) settle(b *batch, results []core.Result) {
	n := answersOf(results)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	t.gate.end(b.round)
	t.inFlight -= len(b.leases)
	if t.over {
		return // another holder may be at work: forget everything
	}
	now := time.Now()
	t.passGate(now, n, b.round)
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
		if results[j].Outcome == core.Delivered {
			t.win.settle(b.places[j])
			continue
		}
		if mayHaveArrived(&results[j]) {
			s.unknown()
		}
		if failed < 0 {
			failed = j
		}
	}
	t.relink(k, b.places[r.first:r.first+r.count])
	if failed < 0 {
		t.unblock(k)
		t.resume(k)
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
	switch t.judge(&s.tries, r, calledWith, n, now) {
	case failedForGood:
		s.attempts++
		t.setAside(k, failureOf(r, reason))
	case refusedForNow:
		t.refuse(k, s, reason, now, r.RetryAfter)
	case spared:
		t.spare(k, s, reason, now, cmp.Or(r.RetryAfter, t.route.cfg.OutageBackoff.Initial))
	case blameless:
		t.postpone(k, s, reason, now, 0)
	case blamelessAll: // it may be the sink: be there when it is back
		t.postpone(k, s, reason, now, 0)
		t.hasten(k, now.Add(t.route.cfg.OutageBackoff.Max))
	case notItsTurn:
		t.resume(k)
	}
}

// refuse counts an attempt of the key's head. It is parked with its key's
// followers for the backoff, or for a time that the sink asked for if that is
// longer; without a queue it lets the key wait in memory, so that its order is
// kept and the others go on. The lock is held.
func (t *term) refuse(k *key, s *slot, reason error, now time.Time, least time.Duration) {
	s.attempts++
	switch {
	case !t.canPark():
		t.postpone(k, s, reason, now, least)
	case s.attempts >= t.route.cfg.MaxAttempts:
		t.setAside(k, core.Failure{Code: core.CodeExhausted, Reason: reason.Error()})
	default:
		t.parkHead(k, s, reason, max(t.route.cfg.Backoff.nth(s.attempts), least), core.CodeRefused)
	}
}

// parkHead parks the key's head, to be tried after a time, and its followers
// behind it. The lock is held.
func (t *term) parkHead(k *key, s *slot, reason error, delay time.Duration, code string) {
	t.tellBlocked(k, &s.entry.Event, reason, delay)
	t.line(t.divert(k), park{state: core.JobReady, delay: delay, failure: core.Failure{Code: code, Reason: reason.Error()}})
	t.follow(k)
}

// spare lets the key wait as long as the sink asks for a part of what it sends
// to: as after a refusal, so that the position gets on, but without a counted
// attempt. Other keys of that part are found by their own tries. The lock is held.
func (t *term) spare(k *key, s *slot, reason error, now time.Time, after time.Duration) {
	if t.canPark() {
		t.parkHead(k, s, reason, after, core.CodeUnavailable)
		return
	}
	t.postpone(k, s, reason, now, after)
}

// postpone lets the key wait, each time longer, and at least for a time; where it
// has parked jobs it is parked behind them instead. The lock is held.
func (t *term) postpone(k *key, s *slot, reason error, now time.Time, least time.Duration) {
	if k.line != nil {
		t.follow(k)
		return
	}
	if k.wait == nil {
		k.wait = &wait{waits: t.route.cfg.Backoff.start(), place: -1}
	}
	delay := max(k.wait.waits.next(), least)
	k.wait.reason = reason
	t.tellBlocked(k, &s.entry.Event, reason, delay)
	t.keys.postpone(k, now.Add(delay))
}

// hasten lets a key that was postponed wait no longer than until a time. The
// lock is held.
func (t *term) hasten(k *key, until time.Time) {
	if k.line == nil {
		t.keys.hasten(k, until)
	}
}

// resume lets a key go on that is in no call: directly, or behind its jobs. The
// lock is held.
func (t *term) resume(k *key) {
	if k.line != nil {
		t.follow(k)
		return
	}
	t.keys.resume(k)
}

// tellBlocked tells people that the key waits behind an event.
func (t *term) tellBlocked(k *key, e *core.Event, reason error, delay time.Duration) {
	t.route.blocked.failed(k.name, reason,
		"key", short(k.name), "event", short(e.ID), "type", short(e.Type), "retry_in", delay)
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
