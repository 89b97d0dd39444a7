package kafka

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gooutbox/outbox/core"
)

var (
	errKeyFailed = errors.New("an earlier event of the key was not delivered")
	errCallEnded = errors.New("a broker took nothing, which ended the call")
)

// failedKeys holds the first lease of each key that was not delivered. Only
// what comes after it is stopped: a failure is often known before what comes
// ahead of it in its key has been sent.
type failedKeys struct {
	any   atomic.Bool
	mu    sync.Mutex
	first map[string]int
}

func (f *failedKeys) add(key string, lease int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = map[string]int{}
	}
	if first, ok := f.first[key]; !ok || lease < first {
		f.first[key] = lease
	}
	f.any.Store(true)
}

// before tells whether a lease of the key ahead of this one was not delivered.
func (f *failedKeys) before(key string, lease int) bool {
	if !f.any.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	first, ok := f.first[key]
	return ok && first < lease
}

func (d *delivery) fail(lease int, r core.Result) {
	d.results[lease] = r
	d.failed.add(d.leases[lease].Event.AggregateID, lease)
}

// stopped tells whether an earlier event of the lease's key was not delivered.
func (d *delivery) stopped(lease int) bool {
	return d.failed.before(d.leases[lease].Event.AggregateID, lease)
}

// finish keeps the order rule in the answers: after an event of a key that was
// not delivered, later ones were not attempted, unless they were in the same
// set of unknown outcome.
func (d *delivery) finish() {
	if !d.failed.any.Load() {
		return
	}
	seen := map[string]struct{}{}
	for i := range d.results {
		r, key := &d.results[i], d.leases[i].Event.AggregateID
		switch _, after := seen[key]; {
		case after && r.Outcome != core.Unknown && r.Outcome != core.Delivered:
			*r = core.Result{Err: errKeyFailed}
		case r.Outcome == core.NotAttempted && r.Err == nil:
			r.Err = errCallEnded
		}
		if r.Outcome != core.Delivered {
			seen[key] = struct{}{}
		}
	}
}
