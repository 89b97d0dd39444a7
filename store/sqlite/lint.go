package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LintRequest says which rows Lint looks at.
type LintRequest struct {
	// Limit is how many rows of each table are read, the newest first. Defaults
	// to 10,000; negative reads all.
	Limit int
	// Sample, where positive, reads so many at random instead.
	Sample int
}

// DefaultLintLimit is LintRequest.Limit where none is given.
const DefaultLintLimit = 10_000

// lintExamples is how many ids a finding names.
const lintExamples = 3

// LintReport is what Lint found.
type LintReport struct {
	// Events and Jobs are how many rows were looked at.
	Events, Jobs int64
	// Findings are ordered by table and field.
	Findings []LintFinding
}

// LintFinding is one reason for which rows can't be delivered.
type LintFinding struct {
	// Table and Field.
	Table, Field string
	// Problem says what is wrong, without the value.
	Problem string
	// Count of the rows, and the ids of the first few.
	Count    int64
	Examples []string
}

// Lint reads events and jobs as cursors and workers do and tells which can't be
// delivered, such as those that a program in another language wrote: what the
// checks of the tables don't see. It changes nothing. Where there is no outbox
// it returns core.ErrNoOutbox.
func (s *Store) Lint(ctx context.Context, req LintRequest) (LintReport, error) {
	var report LintReport
	err := s.exists(ctx)
	if err == nil {
		report.Events, err = s.lint(ctx, req, &report, "outbox", "id", "1", false)
	}
	if err == nil {
		report.Jobs, err = s.lint(ctx, req, &report, "outbox_jobs", "seq", "state <> 'completed'", true)
	}
	if err != nil {
		return LintReport{}, fmt.Errorf("looking at stored rows: %w", err)
	}
	slices.SortStableFunc(report.Findings, func(a, b LintFinding) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Field, b.Field))
	})
	return report, nil
}

func (s *Store) lint(ctx context.Context, req LintRequest, report *LintReport, table, order, condition string, keyless bool) (looked int64, err error) {
	limit := orDefault(req.Limit, DefaultLintLimit)
	order += " DESC"
	if req.Sample > 0 {
		limit, order = req.Sample, "random()"
	}
	err = each(ctx, s.reads, func(rows *sql.Rows) error {
		e := &storedEvent{}
		if err := rows.Scan(append(e.fields(), &e.Payload)...); err != nil {
			return err
		}
		looked++
		if wrong, ok := errors.AsType[*DecodeError](s.decode(ctx, e, keyless)); ok {
			report.add(table, wrong, e.ID)
		}
		return nil
	}, "SELECT "+eventColumns+", payload FROM "+table+" WHERE "+condition+" ORDER BY "+order+" LIMIT ?", limit)
	return looked, err
}

// add counts a row under what is wrong with it.
func (r *LintReport) add(table string, wrong *DecodeError, id string) {
	i := slices.IndexFunc(r.Findings, func(f LintFinding) bool {
		return f.Table == table && f.Field == wrong.Field && f.Problem == wrong.Problem
	})
	if i < 0 {
		i = len(r.Findings)
		r.Findings = append(r.Findings, LintFinding{Table: table, Field: wrong.Field, Problem: wrong.Problem})
	}
	f := &r.Findings[i]
	if f.Count++; len(f.Examples) < lintExamples {
		f.Examples = append(f.Examples, id)
	}
}
