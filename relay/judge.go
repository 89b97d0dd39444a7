package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// finding is what an answer means for the event that it was about.
type finding uint8

const (
	// notItsTurn: nothing is known of it; it is sent again as soon as may be.
	notItsTurn finding = iota
	// blameless: it did not get through and waits, without a counted attempt.
	blameless
	// blamelessAll: as blameless, but no other event got through either.
	blamelessAll
	// spared: the sink throttles a part that the event belongs to. It waits as long
	// as the sink asks, without a counted attempt.
	spared
	// refusedForNow: an attempt is counted.
	refusedForNow
	// failedForGood: it is not tried again.
	failedForGood
)

// timesSuspect is how often an event alone must not get through, while others
// do, before that counts as a refusal.
const timesSuspect = 3

// judge says what becomes of the first event of a key that a call did not
// deliver, and lets the gate learn from it. n counts the outcomes of the call,
// which had so many events. The lock is held.
func (t *term) judge(s *tries, r *core.Result, calledWith int, n tally, now time.Time) finding {
	// Whether it is this event that doesn't get through, or the sink: others
	// were delivered in the same call, or, when it was sent alone, since the
	// last time that it did not get through.
	othersPass := n[core.Delivered] > 0 || calledWith == 1 && s.asked && t.passes > s.passes
	defer func() { s.asked, s.passes = true, t.passes }()
	switch r.Outcome {
	case core.Rejected:
		return failedForGood
	case core.Refused:
		return refusedForNow
	case core.Unknown:
		switch {
		case t.route.caps.NoRepeat:
			return failedForGood
		case !othersPass:
			s.alone = s.alone || s.unknowns > 1
			return blamelessAll
		}
		return s.suspect()
	case core.Unavailable:
		if othersPass {
			return s.suspect()
		}
		// It may have taken the whole call down, more than once.
		s.alone = s.alone || s.asked && t.passes > s.passes
		t.shutGate(now, reasonOf(r))
	case core.Throttled:
		if throttlesPart(r) {
			return spared
		}
		t.throttle(now, r)
	default: // NotAttempted, also where a sink forgot to answer
		switch {
		case !othersPass:
			if n[core.NotAttempted] == calledWith {
				t.shutGate(now, reasonOf(r))
			}
		case s.naks < timesSuspect:
			s.naks++
		default: // others are attempted again and again, this one is not
			return blameless
		}
	}
	return notItsTurn
}

// suspect notes that the event did not get through although others did. The
// third time that is a refusal. From the first on it is sent in calls of its
// own.
func (s *tries) suspect() finding {
	s.alone = true
	s.suspects++
	if s.suspects < timesSuspect {
		return blameless
	}
	return refusedForNow
}

// unknown notes that the event may have arrived.
func (s *tries) unknown() {
	s.redelivered = true
	s.unknowns++
}

// failureOf is why an event failed for good.
func failureOf(r *core.Result, reason error) core.Failure {
	if r.Outcome == core.Unknown {
		return core.Failure{Code: core.CodeUnknown, Reason: reason.Error()}
	}
	return core.Failure{Code: core.CodeRejected, Reason: reason.Error()}
}
