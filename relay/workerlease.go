package relay

import (
	"context"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// grant is what one claim lent: all its leases end together, until they are
// extended.
type grant struct {
	lease   time.Duration
	expires time.Time // on this process's monotonic clock
	jobs    []*held
	open    int         // of the jobs, those that are not done
	timer   *time.Timer // ends the calls when the leases end
}

// leases are those of the jobs that this process has. One goroutine extends
// them, from a third of each on, all of one length in one command.
type leases struct {
	queue   core.Queue
	backoff Backoff
	store   *trouble

	mu     sync.Mutex
	grants map[*grant]struct{}
	more   chan struct{} // has a token when there is a new grant
}

func newLeases(queue core.Queue, b Backoff, store *trouble) *leases {
	return &leases{queue: queue, backoff: b, store: store, grants: map[*grant]struct{}{}, more: make(chan struct{}, 1)}
}

const opExtend = "extending leases"

// keep begins to look after jobs that were claimed together.
func (l *leases) keep(lease time.Duration, jobs []*held) {
	g := &grant{lease: lease, jobs: jobs, open: len(jobs), expires: jobs[0].job.Lease.Deadline}
	for _, j := range jobs {
		j.grant = g
	}
	l.mu.Lock()
	l.grants[g] = struct{}{}
	g.timer = time.AfterFunc(time.Until(g.expires), func() { l.ranOut(g) })
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// begin makes a call the one that the jobs are in: cancel is called when the
// lease of one of them ends. It returns the jobs that are still this process's,
// and those that are not.
func (l *leases) begin(jobs []*held, cancel func()) (mine, gone []*held) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		if j.lost || !now.Before(j.grant.expires) {
			gone = append(gone, j)
			continue
		}
		j.cancel = cancel
		mine = append(mine, j)
	}
	return mine, gone
}

// end takes jobs out of their call.
func (l *leases) end(jobs []*held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		j.cancel = nil
	}
}

// release ends the care for jobs that were settled or lost.
func (l *leases) release(jobs []*held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		l.drop(j)
	}
}

// drop ends the care for a job. The lock is held.
func (l *leases) drop(j *held) {
	if j.done {
		return
	}
	j.done = true
	if j.grant.open--; j.grant.open == 0 {
		j.grant.timer.Stop()
		delete(l.grants, j.grant)
	}
}

// certainlyOver tells whether nothing can be written under the job's lease any
// more, as far as can be told here: somebody has had the time to take it back.
func (l *leases) certainlyOver(j *held, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return j.lost || now.After(j.grant.expires.Add(core.TakeBackGrace+j.grant.lease/3))
}

// ranOut ends the calls of leases that were not extended in time.
func (l *leases) ranOut(g *grant) {
	l.mu.Lock()
	var calls []func()
	if left := time.Until(g.expires); left > 0 { // extended meanwhile
		g.timer.Reset(left)
	} else {
		for _, j := range g.jobs {
			if !j.done && j.cancel != nil {
				calls = append(calls, j.cancel)
			}
		}
	}
	l.mu.Unlock()
	for _, cancel := range calls {
		cancel()
	}
}

// run extends leases until ctx ends.
func (l *leases) run(ctx context.Context) {
	waits := l.backoff.start()
	for {
		due, length, wait := l.due(time.Now())
		if len(due) > 0 {
			if err := l.extend(ctx, due, length); err == nil {
				waits = l.backoff.start()
				continue
			}
			wait = waits.next()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.more:
			if len(due) > 0 { // the store fails: don't hurry
				<-timer.C
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// due are the grants of one length of which a third has passed, and those that
// are nearly so far; or how long to wait for some.
func (l *leases) due(now time.Time) (due []*grant, length, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = time.Hour
	for g := range l.grants {
		in := g.expires.Add(-g.lease * 2 / 3).Sub(now)
		if in <= 0 && (length == 0 || g.lease < length) {
			length = g.lease
		}
		wait = min(wait, in)
	}
	if length == 0 {
		return nil, 0, wait
	}
	for g := range l.grants {
		if g.lease == length && g.expires.Add(-g.lease*3/4).Sub(now) <= 0 {
			due = append(due, g)
		}
	}
	return due, length, 0
}

// extend extends what is open of the grants in one command.
func (l *leases) extend(ctx context.Context, grants []*grant, length time.Duration) error {
	byJob := map[*core.Claimed]*held{}
	var jobs []*core.Claimed
	l.mu.Lock()
	for _, g := range grants {
		for _, j := range g.jobs {
			if !j.done {
				jobs = append(jobs, j.job)
				byJob[j.job] = j
			}
		}
	}
	l.mu.Unlock()
	if len(jobs) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, length/6)
	defer cancel()
	sent := time.Now()
	lost, err := l.queue.Extend(limited, jobs, length)
	if err != nil {
		if ctx.Err() == nil {
			l.store.failed(opExtend, err)
		}
		return err
	}
	l.store.ok(opExtend)
	l.mu.Lock()
	for _, g := range grants {
		g.expires = sent.Add(length)
		g.timer.Reset(time.Until(g.expires))
	}
	l.mu.Unlock()
	gone := make([]*held, len(lost))
	for i, c := range lost {
		gone[i] = byJob[c]
	}
	l.lose(gone)
	return nil
}

// lose is for jobs that are no longer this process's: their calls end, and it is
// told.
func (l *leases) lose(jobs []*held) {
	var calls []func()
	byWorker := map[*worker][]*held{}
	l.mu.Lock()
	for _, j := range jobs {
		if j.lost || j.done {
			continue // settled meanwhile
		}
		j.lost = true
		if j.cancel != nil {
			calls = append(calls, j.cancel)
		}
		byWorker[j.worker] = append(byWorker[j.worker], j)
		l.drop(j)
	}
	l.mu.Unlock()
	for _, cancel := range calls {
		cancel()
	}
	for w, lost := range byWorker {
		w.lost(lost)
	}
}
