package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// When the store is asked for the open jobs anew: openJobsEvery at the latest, and
// openJobsPause at the earliest, whatever reason there is. This term's own
// retries ring the bell too.
const (
	openJobsEvery = 15 * time.Second
	openJobsPause = time.Second
)

// lookout says when the open jobs are to be listed anew. It is guarded by the
// term's lock.
type lookout struct {
	// wanted has a token when there is a reason to look at once.
	wanted chan struct{}
	// at is when a lease of a former holder can have come back; zero if there is
	// none.
	at time.Time
	// count numbers the listings. changed are the positions of the jobs that
	// changed here while one is under way: what is known here is newer then.
	count    uint64
	underway bool
	changed  map[core.Position]bool
}

// look asks for a listing of the open jobs, because some are not as they were
// thought to be. The lock is held.
func (t *term) look() {
	select {
	case t.lookout.wanted <- struct{}{}:
	default:
	}
}

// touch notes that what is known of a job has changed here. The lock is held.
func (t *term) touch(j *job) {
	if t.lookout.underway {
		t.lookout.changed[j.open.Position] = true
	}
}

// findJobs finds out what must be known before anything is sent: the open jobs,
// and what is paused. It returns false when the term must not begin.
func (t *term) findJobs(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.alive, cancel)()
	pause := t.route.relay.cfg.StoreBackoff.start()
	for {
		err := t.lookBefore(ctx)
		if err == nil {
			t.route.store.ok(opOpenJobs)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		t.route.store.failed(opOpenJobs, err)
		if !sleep(ctx, pause.next()) {
			return false
		}
	}
}

func (t *term) lookBefore(ctx context.Context) error {
	if !t.canPark() {
		return t.noJobs(ctx)
	}
	err := t.listJobs(ctx)
	if err == nil {
		err = t.route.relay.pauses.refresh(ctx, pausesFresh)
	}
	if err == nil {
		t.obeyPause()
	}
	return err
}

// noJobs returns an error while a route without a queue has parked events, of a
// holder that had one: their keys would lose their order.
func (t *term) noJobs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.route.relay.cfg.CursorLease)
	defer cancel()
	jobs, err := t.cursor.OpenJobs(ctx)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(o core.OpenJob) bool { return o.State == core.JobFailed }) // as under Skip
	if len(jobs) > 0 {
		return fmt.Errorf("%d parked events of the route are still to be delivered, the first is job %q: "+
			"give the relay its Queue, so that their keys keep their order, or discard them", len(jobs), jobs[0].ID)
	}
	return nil
}

// watchJobs lists the open jobs again and again until the term is over: people
// retry and discard jobs, and leases of former holders come back.
func (t *term) watchJobs() {
	bell := t.route.relay.bells.hang(t.route.cfg.Sink)
	defer t.route.relay.bells.takeDown(bell)
	for t.waitToLook(bell) {
		if !t.persist(opOpenJobs, t.listJobs) {
			return
		}
	}
}

// waitToLook waits until there is a reason to list the open jobs, and returns
// false when the term is over.
func (t *term) waitToLook(bell *bell) bool {
	began := time.Now()
	t.mu.Lock()
	wait := openJobsEvery
	if at := t.lookout.at; !at.IsZero() {
		wait = min(wait, max(at.Sub(began), openJobsPause))
	}
	t.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-t.lookout.wanted:
	case <-bell.rung:
	case <-timer.C:
		return true
	case <-t.alive.Done():
		return false
	}
	return sleep(t.alive, openJobsPause-time.Since(began))
}

// listJobs lists the open jobs, and makes the lines as they say.
func (t *term) listJobs(ctx context.Context) error {
	t.mu.Lock()
	t.lookout.underway, t.lookout.changed = true, map[core.Position]bool{}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, t.route.relay.cfg.CursorLease)
	defer cancel()
	jobs, err := t.cursor.OpenJobs(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookout.underway = false
	if err == nil && !t.over && !t.draining {
		t.merge(jobs, time.Now())
	}
	return err
}

// merge takes over what a listing tells. Jobs that this term is at work with, and
// those that changed here while it was made, stay as they are. The lock is held.
func (t *term) merge(listed []core.OpenJob, now time.Time) {
	t.lookout.count++
	t.lookout.at = time.Time{}
	touched := map[*line]bool{}
	for i := range listed {
		o := &listed[i]
		if o.State == core.JobFailed && t.route.cfg.OnFailure != Hold {
			continue // it failed under another policy
		}
		if l := t.listed(o, now); l != nil {
			touched[l] = true
		}
	}
	for l := range t.lines.all {
		for _, j := range slices.Clone(l.jobs) {
			if j.listing != t.lookout.count && !j.mine && !t.lookout.changed[j.open.Position] {
				t.remove(l, j) // it is final now
				touched[l] = true
			}
		}
	}
	for l := range touched {
		t.follow(l.key)
	}
	t.work.Broadcast()
}

// listed takes over what a listing tells of one job, and returns its line. The
// lock is held.
func (t *term) listed(o *core.OpenJob, now time.Time) *line {
	k := t.keys.named(o.Key)
	if k.line != nil {
		if i, there := k.line.find(o.Position); there {
			j := k.line.jobs[i]
			j.listing = t.lookout.count
			if !j.mine && !t.lookout.changed[o.Position] {
				k.line.count(j, -1)
				t.update(j, o, now)
				k.line.count(j, 1)
			}
			return k.line
		}
		if p := k.line.pending; len(p) > 0 && o.Position.Compare(p[0]) >= 0 {
			return nil // it is being parked
		}
	}
	if t.lookout.changed[o.Position] {
		if k.line == nil && k.count == 0 && !k.inCall && !k.parking {
			t.keys.forget(k)
		}
		return nil // it was settled meanwhile
	}
	if k.line == nil {
		t.keys.takeOut(k)
	}
	j := &job{listing: t.lookout.count}
	t.update(j, o, now)
	l := t.divert(k)
	t.insert(l, j)
	return l
}

// update sets what a listing tells of a job. The lock is held.
func (t *term) update(j *job, o *core.OpenJob, now time.Time) {
	j.open, j.lost = *o, false
	j.due = now.Add(o.Due)
	j.attempts = o.Attempts
	j.reason = cmp.Or(o.Failure.Reason, j.reason)
	if o.State != core.JobActive {
		return
	}
	// It is looked for when its lease should have come back, and then now and
	// again until it has.
	at := j.due
	if !at.After(now) {
		at = now.Add(t.route.relay.cfg.CursorLease / 3)
	}
	if t.lookout.at.IsZero() || at.Before(t.lookout.at) {
		t.lookout.at = at
	}
}
