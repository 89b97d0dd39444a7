package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
		for _, p := range entries {
			m, err := own(p.Entry.Mark)
			if err != nil {
				return err
			}
			id := parkedID(c.state.name, m.id)
			if _, there := s.queue.jobs[id]; there {
				continue
			}
			s.park(id, c.state.name, m, p)
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

// park adds a failed job. The caller holds mu.
func (s *Store) park(id, cursor string, m mark, p core.Parked) {
	now := s.cfg.Now()
	s.queue.seq++
	s.queue.jobs[id] = &job{
		Job: core.Job{
			Event: newDocument(p.Entry.Event, p.Entry.CommittedAt).event, Sink: p.Sink,
			MaxAttempts: core.DefaultMaxAttempts,
		},
		id: id, seq: s.queue.seq, cursor: cursor, position: m.pos, err: p.Entry.Err,
		state: core.JobFailed, attempts: p.Attempts, enqueuedAt: now, finishedAt: now,
		failure: cutFailure(p.Failure), failedAt: now,
	}
}

// cutFailure shortens the reason of a failure to what is stored.
func cutFailure(f core.Failure) core.Failure {
	f.Reason = cut(f.Reason)
	return f
}

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
