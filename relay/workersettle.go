package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

const (
	opSettle = "settling jobs"
	// gatherFor is how long results are gathered before they are written.
	gatherFor = 5 * time.Millisecond
	// maxSettle bounds the jobs of one call.
	maxSettle = 1000
	// maxUnsettled is how many results may wait before lanes do.
	maxUnsettled = 4 * maxSettle
	// settleTimeout bounds one call.
	settleTimeout = 10 * time.Second
)

// settled is what became of a held job, to be written.
type settled struct {
	held *held
	core.Settlement
}

// settler writes the results of all workers of this process, in groups: those
// that come within a few milliseconds, or while the group before is written, are
// one call of the store.
type settler struct {
	queue   core.Queue
	backoff Backoff
	store   *trouble
	leases  *leases

	mu      sync.Mutex
	pending []settled
	first   time.Time // when the oldest of pending came
	hurry   bool      // no more are about to come: don't gather
	// draining: add doesn't wait. finishing: run returns when all is written.
	draining, finishing bool
	more                chan struct{} // has a token when there is something to do
	room                *sync.Cond
}

func newSettler(queue core.Queue, b Backoff, store *trouble, l *leases) *settler {
	s := &settler{queue: queue, backoff: b, store: store, leases: l, more: make(chan struct{}, 1)}
	s.room = sync.NewCond(&s.mu)
	return s
}

// add hands over results. It waits while too many are not written yet, except
// in a drain. hurry tells that no further ones are about to come.
func (s *settler) add(results []settled, hurry bool) {
	if len(results) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) >= maxUnsettled && !s.draining {
		s.room.Wait()
	}
	if len(s.pending) == 0 {
		s.first = time.Now()
	}
	s.pending = append(s.pending, results...)
	s.hurry = s.hurry || hurry
	s.signal()
}

func (s *settler) signal() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// drain lets no one wait any more.
func (s *settler) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.room.Broadcast()
}

// finish lets run return when all is written.
func (s *settler) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishing = true
	s.signal()
}

// run writes until finish was called and all is written, or ctx ends. It
// returns how many results were not written.
func (s *settler) run(ctx context.Context) int {
	waits := s.backoff.start()
	for {
		group, wait, done := s.next()
		switch {
		case done:
			return 0
		case len(group) == 0:
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-s.more:
			case <-timer.C:
			}
			timer.Stop()
		default:
			if left := s.write(ctx, group); len(left) > 0 {
				s.putBack(left)
				sleep(ctx, waits.next())
			} else {
				waits = s.backoff.start()
			}
		}
		if ctx.Err() != nil {
			return s.unwritten()
		}
	}
}

func (s *settler) unwritten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// next is what to write now; or how long to wait for more; or that all is done.
func (s *settler) next() (group []settled, wait time.Duration, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return nil, time.Hour, s.finishing
	}
	left := gatherFor - time.Since(s.first)
	if left > 0 && len(s.pending) < maxSettle && !s.hurry && !s.draining {
		return nil, left, false
	}
	n := min(maxSettle, len(s.pending))
	group = slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	s.first, s.hurry = time.Now(), false
	s.room.Broadcast()
	return group, 0, false
}

func (s *settler) putBack(group []settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(group, s.pending...)
}

// write writes a group, and returns what is left of it to write.
func (s *settler) write(ctx context.Context, group []settled) (left []settled) {
	now := time.Now()
	var late []*held
	group = slices.DeleteFunc(group, func(one settled) bool {
		over := s.leases.certainlyOver(one.held, now)
		if over {
			late = append(late, one.held)
		}
		return over
	})
	s.leases.lose(late)
	if len(group) == 0 {
		return nil
	}
	settlements := make([]core.Settlement, len(group))
	for i := range group {
		settlements[i] = group[i].Settlement
	}
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	lost, err := s.queue.Settle(limited, settlements)
	if err != nil {
		if ctx.Err() == nil {
			s.store.failed(opSettle, err)
		}
		return group
	}
	s.store.ok(opSettle)
	crash.Here("relay.job-settled")
	gone := make(map[*core.Claimed]bool, len(lost))
	for _, c := range lost {
		gone[c] = true
	}
	mine, theirs := make([]*held, 0, len(group)), []*held(nil)
	for _, one := range group {
		if gone[one.Job] {
			theirs = append(theirs, one.held)
		} else {
			mine = append(mine, one.held)
		}
	}
	s.leases.lose(theirs)
	s.leases.release(mine)
	for i := range group {
		if one := &group[i]; !gone[one.Job] {
			one.held.worker.wrote(ctx, one)
		}
	}
	return nil
}
