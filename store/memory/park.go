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

// jobKey is the identity of a job that came from a cursor.
type jobKey struct{ cursor, event string }

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
			key := jobKey{c.state.name, m.id}
			if _, there := s.jobs[key]; there {
				continue
			}
			p.Failure.Reason = cut(p.Failure.Reason)
			s.jobs[key] = Job{
				Cursor: c.state.name, Sink: p.Sink, Position: m.pos, Attempts: p.Attempts,
				Event: newDocument(p.Entry.Event, p.Entry.CommittedAt).event, Failure: p.Failure,
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("parking events: %w", err)
	}
	return nil
}

// Jobs returns the jobs of all cursors, by cursor and position.
func (s *Store) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := make([]Job, 0, len(s.jobs))
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(strings.Compare(a.Cursor, b.Cursor), a.Position.Compare(b.Position))
	})
	return jobs
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
