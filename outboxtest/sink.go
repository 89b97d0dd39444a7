package outboxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Sink is a core.Sink that answers by a script and remembers what it was given.
// What the script says nothing about is delivered. Its methods may be called by
// several goroutines at once.
type Sink struct {
	mu        sync.Mutex
	rules     []*rule
	calls     [][]core.Lease
	delivered []core.Lease
}

// rule is a part of the script.
type rule struct {
	match Matcher[core.Event]
	left  []core.Result
	last  *core.Result // for ever, once nothing is left
}

// NewSink returns a sink without a script.
func NewSink() *Sink { return &Sink{} }

// On answers tries of events that match with these results, one after the other;
// what comes later is delivered. An event takes its result from the first rule
// that matches it and has one left. It returns s.
func (s *Sink) On(match Matcher[core.Event], results ...core.Result) *Sink {
	return s.add(&rule{match: match, left: slices.Clone(results)})
}

// Always answers every try of events that match with this result. It returns s.
func (s *Sink) Always(match Matcher[core.Event], result core.Result) *Sink {
	return s.add(&rule{match: match, last: &result})
}

func (s *Sink) add(r *rule) *Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return s
}

// Deliver answers by the script.
func (s *Sink) Deliver(_ context.Context, leases []core.Lease) []core.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]core.Result, len(leases))
	call := make([]core.Lease, len(leases))
	for i, l := range leases {
		l.Event = copyOf(l.Event) // a sink must not keep the relay's
		call[i], results[i] = l, s.answer(l.Event)
		if results[i].Outcome == core.Delivered {
			s.delivered = append(s.delivered, l)
		}
	}
	s.calls = append(s.calls, call)
	return results
}

func (s *Sink) answer(e core.Event) core.Result {
	for _, r := range s.rules {
		if !r.match.Matches(e) {
			continue
		}
		if len(r.left) > 0 {
			result := r.left[0]
			r.left = r.left[1:]
			return result
		}
		if r.last != nil {
			return *r.last
		}
	}
	return core.Result{Outcome: core.Delivered}
}

// Close does nothing.
func (*Sink) Close(context.Context) error { return nil }

// Calls are the calls of Deliver so far, and the leases that each was given.
func (s *Sink) Calls() [][]core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Delivered are the leases that were answered as delivered, in that order.
func (s *Sink) Delivered() []core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.delivered)
}

// AssertDelivered fails the test unless exactly these events were delivered, in
// this order: between different keys that order is chance. It returns whether
// that is so.
func (s *Sink) AssertDelivered(t T, want ...Matcher[core.Event]) bool {
	t.Helper()
	var got []core.Event
	for _, l := range s.Delivered() {
		got = append(got, l.Event)
	}
	return assert(t, "delivered events", got, want, eventText)
}

// Results for scripts.

// Refuse is an event that did not get through, and may later.
func Refuse(reason string) core.Result { return result(core.Refused, reason) }

// Reject is an event that can never get through.
func Reject(reason string) core.Result { return result(core.Rejected, reason) }

// Away is a destination that takes nothing at present.
func Away(reason string) core.Result { return result(core.Unavailable, reason) }

// Unsure is an event that was sent and not answered.
func Unsure(reason string) core.Result { return result(core.Unknown, reason) }

// RefuseFor is Refuse where the destination says for how long not to try again.
// Drain waits so long.
func RefuseFor(reason string, after time.Duration) core.Result {
	r := result(core.Refused, reason)
	r.RetryAfter = after
	return r
}

// Throttle is a destination that asks to come back later. Drain waits so long.
func Throttle(reason string, after time.Duration) core.Result {
	r := result(core.Throttled, reason)
	r.RetryAfter = after
	return r
}

// ThrottleOnly is Throttle for a tenant or domain; the others go on.
func ThrottleOnly(target core.PauseTarget, reason string, after time.Duration) core.Result {
	r := Throttle(reason, after)
	r.Throttles = target
	return r
}

func result(o core.Outcome, reason string) core.Result {
	return core.Result{Outcome: o, Err: errors.New(reason)}
}
