package main

import (
	"context"

	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// lint compares stored documents with the documented layout.
func (s *mongoStore) lint(ctx context.Context, limit, sample int) (lintReport, error) {
	if limit == 0 {
		limit = -1
	}
	found, err := s.Lint(ctx, mongostore.LintRequest{Limit: limit, Sample: sample})
	report := lintReport{Events: found.Events, Jobs: found.Jobs, Findings: make([]lintFinding, len(found.Findings))}
	for i, f := range found.Findings {
		report.Findings[i] = lintFinding{statusWarn, f.Collection, f.Field, f.Problem, f.Advice, f.Count, f.Examples}
		if f.Fatal {
			report.Findings[i].Status = statusFail
		}
	}
	return report, err
}
