package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// findJob returns the job of an id, or the only job of the event of this id.
func findJob(ctx context.Context, s store, id string) (core.JobInfo, error) {
	job, err := s.Job(ctx, id)
	if !errors.Is(err, core.ErrNoJob) {
		return job, err
	}
	e, explainErr := s.Explain(ctx, id)
	switch {
	case errors.Is(explainErr, core.ErrNoJob):
		return job, fmt.Errorf("%w: ids are those that `outbox failed` prints", err)
	case explainErr != nil:
		return job, explainErr
	case e.Job == nil:
		return job, fmt.Errorf("event %s is %s and has no job: see outbox explain %s", id, e.State, id)
	case e.Job.Cursor == "":
		return job, fmt.Errorf("no job has the id %s, but an event of that id has one: did you mean %s?", id, e.Job.ID)
	}
	// Each cursor parks an event for itself.
	stats, err := s.Stats(ctx)
	if err != nil {
		return job, err
	}
	var all []string
	for _, c := range stats.Cursors {
		parked := c.Name + "/" + id
		_, err := s.Job(ctx, parked)
		switch {
		case err == nil:
			all = append(all, parked)
		case !errors.Is(err, core.ErrNoJob):
			return job, err
		}
	}
	if len(all) > 1 {
		return job, fmt.Errorf("event %s has several jobs: name one of %s", id, strings.Join(all, ", "))
	}
	return *e.Job, nil
}

// findJobs replaces ids of events by those of their jobs. An id that is nobody's
// stays: whoever acts on it then says so.
func findJobs(ctx context.Context, s store, ids []string) ([]string, error) {
	found := make([]string, len(ids))
	for i, id := range ids {
		job, err := findJob(ctx, s, id)
		switch {
		case err == nil:
			found[i] = job.ID
		case errors.Is(err, core.ErrNoJob):
			found[i] = id
		default:
			return nil, err
		}
	}
	return found, nil
}
