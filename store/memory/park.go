package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

// parkedID is the id of a job that came from a cursor.
func parkedID(cursor, event string) string { return cursor + "/" + event }

// Job is what Park kept of an event.
type Job struct {
	Cursor, Sink string
	Event        core.Event
	Position     core.Position
	Attempts     int
	Failure      core.Failure
}

func (c *cursor) Park(_ context.Context, entries []core.Parked) error {
	err := c.write(OpPark, func(s *Store) error {
		for i := range entries {
			p := &entries[i]
			m, err := own(p.Entry.Mark)
			if err != nil {
				return err
			}
			id := parkedID(c.state.name, m.id)
			p.ID, p.Ref = id, id
			if _, there := s.queue.jobs[id]; there {
				continue
			}
			s.park(id, c.state.name, m, *p)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("parking events: %w", err)
	}
	return nil
}

// Parked returns the jobs of all cursors, by cursor and position.
func (s *Store) Parked() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []Job
	for _, j := range s.queue.jobs {
		if j.cursor != "" {
			jobs = append(jobs, Job{
				Cursor: j.cursor, Sink: j.Sink, Event: j.Event, Position: j.position,
				Attempts: j.attempts, Failure: j.failure,
			})
		}
	}
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(strings.Compare(a.Cursor, b.Cursor), a.Position.Compare(b.Position))
	})
	return jobs
}

// park adds a job. The caller holds mu.
func (s *Store) park(id, cursor string, m mark, p core.Parked) {
	now := s.cfg.Now()
	s.queue.seq++
	j := &job{
		Job: core.Job{
			Event: newDocument(p.Entry.Event, p.Entry.CommittedAt).event, Sink: p.Sink,
			MaxAttempts: cmp.Or(p.MaxAttempts, core.DefaultMaxAttempts),
		},
		id: id, seq: s.queue.seq, cursor: cursor, position: m.pos, err: core.MarkRejected(p.Entry.Err),
		state: cmp.Or(p.State, core.JobFailed), attempts: p.Attempts, redelivered: p.Redelivered, enqueuedAt: now,
		holds: p.Holds,
	}
	if p.Failure != (core.Failure{}) {
		j.failure, j.failedAt = cutFailure(p.Failure), now
	}
	if j.state == core.JobFailed {
		j.finishedAt = now
	} else {
		j.availableAt = now.Add(p.Delay)
	}
	s.queue.jobs[id] = j
}

// open tells whether the job is one of OpenJobs.
func (j *job) open() bool { return !j.state.Final() || j.state == core.JobFailed && j.holds }

// parkedBehind tells whether an event behind d of the same key has a job of the
// cursor: d was settled before that. An event whose key isn't known was parked
// without waiting for others. The caller holds mu.
func (s *Store) parkedBehind(cursor string, d *document) bool {
	for _, j := range s.queue.jobs {
		if j.cursor == cursor && j.AggregateID != "" && j.AggregateID == d.event.AggregateID && j.position.Compare(d.pos) > 0 {
			return true
		}
	}
	return false
}

// OpenJobs lists the jobs that are still to be delivered, see core.Cursor.
func (c *cursor) OpenJobs(ctx context.Context) ([]core.OpenJob, error) {
	s := c.store
	if err := cmp.Or(ctx.Err(), s.fault(OpOpenJobs)); err != nil {
		return nil, fmt.Errorf("listing open jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	var jobs []core.OpenJob
	for _, j := range s.queue.jobs {
		if j.cursor != c.state.name || !j.open() {
			continue
		}
		o := core.OpenJob{
			ID: j.id, EventID: j.ID, Key: j.AggregateID, Position: j.position, State: j.state, Attempts: j.attempts,
			Failure: j.failure, Ref: j.id,
		}
		switch j.state {
		case core.JobReady:
			o.Due = j.availableAt.Sub(now)
		case core.JobActive:
			o.Due = j.leaseUntil.Add(core.TakeBackGrace).Sub(now)
		}
		jobs = append(jobs, o)
	}
	slices.SortFunc(jobs, func(a, b core.OpenJob) int { return a.Position.Compare(b.Position) })
	return jobs, nil
}

// ClaimJobs lends ready jobs of the cursor, see core.Cursor.
func (c *cursor) ClaimJobs(ctx context.Context, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
	sent := time.Now()
	if err := cmp.Or(ctx.Err(), c.store.fault(OpClaimJobs)); err != nil {
		return nil, fmt.Errorf("claiming jobs of the cursor: %w", err)
	}
	claimed := c.lend(jobs, cmp.Or(lease, core.DefaultJobLease), sent)
	if err := c.store.lost(OpClaimJobs); err != nil {
		return nil, fmt.Errorf("claiming jobs of the cursor: %w", err)
	}
	return claimed, nil
}

func (c *cursor) lend(jobs []core.OpenJob, lease time.Duration, sent time.Time) (claimed []*core.Claimed) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.tokens++
	now := s.cfg.Now()
	for _, o := range jobs {
		id, _ := o.Ref.(string)
		j := s.queue.jobs[id]
		if j == nil || j.cursor != c.state.name || j.state != core.JobReady {
			continue
		}
		j.state, j.token, j.owner, j.leaseUntil = core.JobActive, s.queue.tokens, c.state.owner, now.Add(lease)
		got := s.claimed(j, now, sent.Add(lease))
		got.Lease.Route, got.Lease.Fence = c.state.name, c.term.Fence
		claimed = append(claimed, got)
	}
	return claimed
}

// cutFailure shortens the reason of a failure to what is stored.
func cutFailure(f core.Failure) core.Failure {
	f.Reason = cut(f.Reason)
	return f
}

// Operations of parking that Config.Fault and Config.Lost are told.
const (
	OpOpenJobs  = "open jobs"
	OpClaimJobs = "claim jobs"
)

// cut shortens a reason to what is stored, between two characters.
func cut(reason string) string {
	if len(reason) <= core.MaxReasonBytes {
		return reason
	}
	end := core.MaxReasonBytes
	for end > 0 && !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}
