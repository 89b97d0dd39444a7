package main

import (
	"context"
)

// ensureIndexes makes the collections and indexes of the log, or with dryRun
// only tells which are missing.
func (s *mongoStore) ensureIndexes(ctx context.Context, dryRun bool) ([]string, error) {
	missing, err := s.Missing(ctx)
	if err != nil {
		return nil, err
	}
	verb := "would make "
	if !dryRun {
		if err := s.EnsureIndexes(ctx); err != nil {
			return nil, err
		}
		verb = "made "
	}
	lines := make([]string, 0, len(missing)+1)
	for _, m := range missing {
		lines = append(lines, verb+s.options.Database+"."+m)
	}
	if len(missing) == 0 {
		lines = append(lines, "nothing to make: all is there")
	}
	return lines, nil
}

// ensureValidators sets the validators of log and queue.
func (s *mongoStore) ensureValidators(ctx context.Context, dryRun bool) ([]string, error) {
	verb := "would set the validator of "
	if !dryRun {
		if err := s.EnsureValidators(ctx); err != nil {
			return nil, err
		}
		verb = "set the validator of "
	}
	prefix := verb + s.options.Database + "." + s.options.Collection
	return []string{prefix, prefix + "_jobs"}, nil
}
