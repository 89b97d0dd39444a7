package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// batch is what one call to the sink takes. A lane uses the same one again and
// again.
type batch struct {
	leases []core.Lease
	places []uint64 // in the window, one per lease
	jobs   []*job   // in place of places, in a call of parked jobs
	runs   []run
	bytes  int
	round  uint64 // see gate.begin
	// suspect is the mark to note before the call, nil in the normal case.
	suspect core.Mark
}

// run is a key's part of a batch: count leases from first on.
type run struct {
	key          *key
	first, count int
}

// clear lets the events go. The leases are not used again when the sink may
// still be reading them.
func (b *batch) clear(kept bool) {
	if kept {
		b.leases = nil
	}
	clear(b.leases)
	clear(b.runs)
	*b = batch{leases: b.leases[:0], places: b.places[:0], runs: b.runs[:0]}
}

// next fills b with the events of the lane's next call, waiting for them. It
// returns false when the lane must end.
func (t *term) next(b *batch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.draining || t.over {
			return false
		}
		if t.mayCall() && t.choose(b) {
			t.calls++
			b.round = t.gate.begin()
			t.inFlight += len(b.leases)
			if (!t.keys.ready.empty() || t.jobsNext()) && t.mayCall() {
				t.work.Signal()
			}
			return true
		}
		t.work.Wait()
	}
}

// choose fills b with events or with jobs, and tells whether it found any. The
// lock is held.
func (t *term) choose(b *batch) bool {
	if t.jobsLast = t.jobsNext(); t.jobsLast {
		now := time.Now()
		t.pickJobs(b, now)
		t.setAlarm(now)
		return true
	}
	return t.pick(b)
}

// mayCall tells whether a call may begin now. The lock is held.
func (t *term) mayCall() bool {
	if t.paused {
		return false
	}
	if t.careful && (t.calls > 0 || t.win.settled > t.win.saved || t.parking > 0) {
		return false
	}
	if t.gate.until.IsZero() {
		return t.gate.open(time.Time{})
	}
	return t.gate.open(time.Now())
}

// pick fills b from the keys that are ready, oldest first, and tells whether it
// found any. The lock is held.
func (t *term) pick(b *batch) bool {
	for !t.keys.ready.empty() && len(b.leases) < t.gate.limit {
		k := t.keys.ready.front
		head := t.win.at(k.head)
		if len(b.leases) > 0 && (head.alone || b.bytes+head.entry.Size > t.route.cfg.BatchBytes) {
			break
		}
		t.keys.ready.popFront()
		if head.entry.Err != nil {
			t.setAside(k, core.Failure{Code: core.CodeUndecodable, Reason: head.entry.Err.Error()})
			continue
		}
		if t.careful && t.gate.limit == 1 {
			if t.crashedBefore(head) {
				head.attempts = t.found.SuspectCount
				t.setAside(k, core.Failure{Code: core.CodeCrashed, Reason: t.crashReason()})
				continue
			}
			b.suspect = head.entry.Mark
		}
		t.take(b, k)
		if head.alone {
			break
		}
	}
	return len(b.leases) > 0
}

// take adds a run of k's events to b: one, or as many as the sink may have in
// one call. What lies far behind the head in the log is left for a later call,
// so that the keys go on side by side.
func (t *term) take(b *batch, k *key) {
	most := 1
	if t.route.caps.PrefixPerKey {
		most = t.gate.limit - len(b.leases)
	}
	r := run{key: k, first: len(b.leases)}
	for i := k.head; i != none && r.count < most; {
		s := t.win.at(i)
		if r.count > 0 && (s.alone || t.win.at(k.head).alone || i-k.head >= t.span || s.entry.Err != nil ||
			b.bytes+s.entry.Size > t.route.cfg.BatchBytes) {
			break
		}
		b.leases = append(b.leases, core.Lease{
			Event: s.entry.Event, Attempt: s.attempts + 1, Redelivered: s.redelivered,
			Source: t.source, Route: t.route.cfg.Name, Fence: t.found.Fence,
		})
		b.places = append(b.places, i)
		b.bytes += s.entry.Size
		r.count++
		i = s.next
	}
	k.inCall = true
	b.runs = append(b.runs, r)
}
