package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) lintCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Check stored events and jobs against the documented layout",
		Long: "Lint reads events and jobs as relays do and says which can't be delivered, and what else differs from the\n" +
			"layout in docs/layout.md: for outboxes that programs in other languages write to. It changes nothing, and\n" +
			"shows no payload.\n\n" +
			"Exit status 1 tells that something can't be delivered; warnings don't count.",
		Args: cobra.NoArgs,
	}
	limit := cmd.Flags().Int("limit", 10_000, "look at so many of the newest events, and jobs; 0 looks at all")
	sample := cmd.Flags().Int("sample", 0, "look at so many events, and jobs, at random instead")
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, _ []string, out output) error {
		if *limit < 0 || *sample < 0 {
			return &usageError{errors.New("--limit and --sample must not be negative")}
		}
		report, err := s.lint(ctx, *limit, *sample)
		if err != nil {
			return err
		}
		report.OK = true
		for _, f := range report.Findings {
			report.OK = report.OK && f.Status != statusFail
		}
		err = out.print(report, func(p *page) { lintPage(p, report) })
		if err == nil && !report.OK {
			err = errSaid
		}
		return err
	})
}

// lintReport is what a store found in its collections, also in JSON.
type lintReport struct {
	OK bool `json:"ok"`
	// Events and Jobs are how many were looked at.
	Events   int64         `json:"events"`
	Jobs     int64         `json:"jobs"`
	Findings []lintFinding `json:"findings"`
}

// lintFinding is one way in which documents differ from the layout.
type lintFinding struct {
	Status     status   `json:"status"`
	Collection string   `json:"collection"`
	Field      string   `json:"field"`
	Problem    string   `json:"problem"`
	Advice     string   `json:"advice"`
	Count      int64    `json:"count"`
	Examples   []string `json:"examples"`
}

func lintPage(p *page, r lintReport) {
	p.line("%s and %s looked at", countOf(r.Events, "event"), countOf(r.Jobs, "job"))
	if len(r.Findings) == 0 {
		p.line("all can be delivered, and are as documented")
		return
	}
	p.line("")
	rows := [][]string{{" ", "FIELD", "COUNT", "PROBLEM"}}
	for _, f := range r.Findings {
		field := f.Collection
		if f.Field != "" {
			field += "." + f.Field
		}
		rows = append(rows, []string{string(f.Status), field, strconv.FormatInt(f.Count, 10), f.Problem},
			[]string{" ", " ", " ", "such as " + strings.Join(f.Examples, ", ")}, []string{" ", " ", " ", "→ " + f.Advice})
	}
	p.table(rows)
	if r.OK {
		p.line("\nall can be delivered")
	}
}

func countOf(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
