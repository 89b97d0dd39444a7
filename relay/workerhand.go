package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// held is a job in this process's hands: from its claim until its settlement is
// written or its lease is known to be lost.
type held struct {
	job    *core.Claimed
	worker *worker
	grant  *grant
	since  time.Time // when it was claimed
	// rank and tag order it among the jobs ahead.
	rank int
	tag  uint64
	// suspect: it is counted in worker.suspects.
	suspect bool

	// Guarded by leases.mu.
	cancel func() // of the call that it is in, nil while it is in none
	lost   bool
	done   bool // settled, or lost
}

func (h *held) tenant() string { return h.job.Lease.Event.Tenant }

// hand is what a worker claimed and has not begun, in the order in which lanes
// get it: higher classes first, within a class the tenants in turn, and jobs of
// one tenant as they were claimed. It is guarded by the worker's lock.
//
// A job's tag is the round of its class in which it goes: the present one, or
// the one after the last job of its tenant. A tenant who comes later therefore
// doesn't wait behind all that another one has here.
type hand struct {
	jobs    []*held
	classes [3]struct {
		round uint64            // of the last job that was handed out
		next  map[string]uint64 // by tenant
	}
	tenants map[string]int // how many jobs each has here
}

func newHand() hand {
	h := hand{tenants: map[string]int{}}
	for i := range h.classes {
		h.classes[i].next = map[string]uint64{}
	}
	return h
}

// maxTenantsKnown bounds what is remembered of tenants that have nothing here.
const maxTenantsKnown = 10_000

// add puts a job that was claimed in its place.
func (h *hand) add(j *held) {
	c := &h.classes[j.rank]
	if len(c.next) >= maxTenantsKnown {
		clear(c.next)
	}
	j.tag = max(c.round, c.next[j.tenant()])
	c.next[j.tenant()] = j.tag + 1
	h.put(j)
}

// put puts a job in the place that its rank and tag say.
func (h *hand) put(j *held) {
	h.tenants[j.tenant()]++
	at, _ := slices.BinarySearchFunc(h.jobs, j, func(a, b *held) int {
		if order := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tag, b.tag)); order != 0 {
			return order
		}
		return -1 // behind its equals
	})
	h.jobs = slices.Insert(h.jobs, at, j)
}

// take hands out up to most jobs that may begin.
func (h *hand) take(most int, may func(*held) bool) []*held {
	var taken []*held
	for i := 0; i < len(h.jobs) && len(taken) < most; i++ {
		j := h.jobs[i]
		if !may(j) {
			continue
		}
		// What stays moves behind what was taken.
		n := len(taken)
		copy(h.jobs[n+1:i+1], h.jobs[n:i])
		taken = append(taken, j)
		h.classes[j.rank].round = max(h.classes[j.rank].round, j.tag)
		h.left(j)
	}
	clear(h.jobs[:len(taken)])
	h.jobs = h.jobs[len(taken):]
	return taken
}

// remove takes out the jobs that match.
func (h *hand) remove(match func(*held) bool) (out []*held) {
	h.jobs = slices.DeleteFunc(h.jobs, func(j *held) bool {
		if !match(j) {
			return false
		}
		out = append(out, j)
		h.left(j)
		return true
	})
	return out
}

func (h *hand) left(j *held) {
	if h.tenants[j.tenant()]--; h.tenants[j.tenant()] <= 0 {
		delete(h.tenants, j.tenant())
	}
}
