package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gooutbox/outbox/core"
)

func (p *program) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show one job",
		Long: "Get shows one job without its payload. ID is that of the job, as the other commands print it; that of an\n" +
			"event that a cursor parked is the cursor's name, a slash, and the event's id. The event's id alone will do\n" +
			"where only one cursor has parked it.",
		Args: wants(1),
	}
	return p.operation(cmd, lookTimeout, func(ctx context.Context, s store, args []string, out output) error {
		job, err := findJob(ctx, s, args[0])
		if err != nil {
			return err
		}
		return out.print(jobObject(job), func(p *page) { jobPage(p, job) })
	})
}

func (p *program) failedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "failed",
		Short: "List jobs that failed, page by page",
		Long: "Failed lists failed jobs, oldest first, or those of another state. Flags narrow it down: a job must\n" +
			"match all of them. What follows a page is printed by the command that its last line names.",
		Args: cobra.NoArgs,
	}
	selection := selectionFlags(cmd)
	state := cmd.Flags().String("state", string(core.JobFailed), "`state` of the jobs: "+stateNames)
	after := cmd.Flags().String("after", "", "go on after the `place` that an earlier page ended with")
	limit := cmd.Flags().Int("limit", 50, "jobs a page, at most 1000")
	return p.operation(cmd, lookTimeout, func(ctx context.Context, s store, _ []string, out output) error {
		filter := selection.filter()
		var err error
		if filter.State, err = parseState(*state); err != nil {
			return err
		}
		if *limit < 1 || *limit > 1000 {
			return &usageError{errors.New("--limit must be 1 to 1000")}
		}
		jobs, next, err := s.Jobs(ctx, filter, *after, *limit)
		if err != nil {
			return err
		}
		list := jobsJSON{Jobs: make([]jobJSON, len(jobs)), Next: next}
		for i, job := range jobs {
			list.Jobs[i] = jobObject(job)
		}
		return out.print(list, func(p *page) { jobsPage(p, filter.State, jobs, following(cmd, next)) })
	})
}

const stateNames = "ready, active, completed, failed or unknown"

func parseState(s string) (core.JobState, error) {
	switch state := core.JobState(s); state {
	case core.JobReady, core.JobActive, core.JobCompleted, core.JobFailed, core.JobUnknown:
		return state, nil
	}
	return "", &usageError{fmt.Errorf("--state must be %s", stateNames)}
}

// The JSON form of core.JobInfo, for scripts: keys are only added.
type (
	jobsJSON struct {
		Jobs []jobJSON `json:"jobs"`
		// Next is what --after takes for the next page, empty on the last.
		Next string `json:"next"`
	}
	jobJSON struct {
		ID            string        `json:"id"`
		State         core.JobState `json:"state"`
		Sink          string        `json:"sink"`
		Cursor        string        `json:"cursor,omitempty"`
		Holds         bool          `json:"holds,omitempty"`
		EventID       string        `json:"event_id"`
		Type          string        `json:"event_type"`
		Aggregate     string        `json:"aggregate,omitempty"`
		Key           string        `json:"key,omitempty"`
		Tenant        string        `json:"tenant,omitempty"`
		CorrelationID string        `json:"correlation_id,omitempty"`
		Priority      string        `json:"priority"`
		DedupKey      string        `json:"dedup_key,omitempty"`
		Attempts      int           `json:"attempts"`
		MaxAttempts   int           `json:"max_attempts"`
		Redeliveries  int           `json:"redeliveries"`
		EnqueuedAt    time.Time     `json:"enqueued_at,omitzero"`
		AvailableAt   time.Time     `json:"available_at,omitzero"`
		LeaseUntil    time.Time     `json:"lease_until,omitzero"`
		Owner         string        `json:"owner,omitempty"`
		FinishedAt    time.Time     `json:"finished_at,omitzero"`
		ExpireAt      time.Time     `json:"expire_at,omitzero"`
		Failure       *failureJSON  `json:"failure,omitempty"`
		Result        string        `json:"result,omitempty"`
		PayloadBytes  int           `json:"payload_bytes"`
	}
	failureJSON struct {
		Code   string    `json:"code"`
		Reason string    `json:"reason"`
		At     time.Time `json:"at,omitzero"`
	}
)

func jobObject(j core.JobInfo) jobJSON {
	o := jobJSON{
		ID: j.ID, State: j.State, Sink: j.Sink, Cursor: j.Cursor, Holds: j.Holds, EventID: j.EventID, Type: j.Type,
		Aggregate: j.Aggregate, Key: j.AggregateID, Tenant: j.Tenant, CorrelationID: j.CorrelationID,
		Priority: j.Priority.String(), DedupKey: j.DedupKey, Attempts: j.Attempts, MaxAttempts: j.MaxAttempts,
		Redeliveries: j.Redeliveries, EnqueuedAt: j.EnqueuedAt, AvailableAt: j.AvailableAt, LeaseUntil: j.LeaseUntil,
		Owner: j.Owner, FinishedAt: j.FinishedAt, ExpireAt: j.ExpireAt, Result: j.Result, PayloadBytes: j.PayloadBytes,
	}
	if j.Failure.Code != "" || j.Failure.Reason != "" {
		o.Failure = &failureJSON{j.Failure.Code, j.Failure.Reason, j.FailedAt}
	}
	return o
}

// jobPage writes one field a line, without those that are empty.
func jobPage(p *page, j core.JobInfo) {
	attempts := fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts)
	if j.Redeliveries > 0 {
		attempts += ", and " + countOf(int64(j.Redeliveries), "lease") + " that ran out"
	}
	state := string(j.State)
	if j.Holds {
		state += ", holds its key"
	}
	failure := ""
	if j.Failure.Code != "" || j.Failure.Reason != "" {
		failure = j.Failure.Code + ": " + j.Failure.Reason
	}
	var rows [][]string
	for _, row := range [][]string{
		{"id", j.ID},
		{"state", state},
		{"sink", j.Sink},
		{"cursor", j.Cursor},
		{"event id", j.EventID},
		{"type", j.Type},
		{"aggregate", j.Aggregate},
		{"key", j.AggregateID},
		{"tenant", j.Tenant},
		{"correlation id", j.CorrelationID},
		{"priority", j.Priority.String()},
		{"dedup key", j.DedupKey},
		{"attempts", attempts},
		{"enqueued at", clock(j.EnqueuedAt)},
		{"due at", clock(j.AvailableAt)},
		{"leased by", j.Owner},
		{"leased until", clock(j.LeaseUntil)},
		{"failure", failure},
		{"failed at", clock(j.FailedAt)},
		{"result", j.Result},
		{"finished at", clock(j.FinishedAt)},
		{"removed at", clock(j.ExpireAt)},
		{"payload", strconv.Itoa(j.PayloadBytes) + " bytes"},
	} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	p.table(rows)
}

// reasonWidth bounds a reason in a table; get and explain print all of it.
const reasonWidth = 60

// following is the command that prints the page after this one, or nothing.
func following(cmd *cobra.Command, next string) string {
	if next == "" {
		return ""
	}
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "after" {
			words = append(words, "--"+f.Name, quoted(f.Value.String()))
		}
	})
	return strings.Join(append(words, "--after", next), " ")
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	if shellWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// since tells from when on a job is in its state, and what that column is called.
func since(state core.JobState, j core.JobInfo) (title string, at time.Time) {
	switch state {
	case core.JobFailed, core.JobUnknown:
		if j.FailedAt.IsZero() {
			return "FAILED AT", j.FinishedAt
		}
		return "FAILED AT", j.FailedAt
	case core.JobCompleted:
		return "FINISHED AT", j.FinishedAt
	}
	return "ENQUEUED AT", j.EnqueuedAt
}

func jobsPage(p *page, state core.JobState, jobs []core.JobInfo, more string) {
	if len(jobs) == 0 {
		p.line("no %s job matches", state)
		return
	}
	title, _ := since(state, core.JobInfo{})
	rows := [][]string{{"ID", "TYPE", "KEY", "SINK", "ATTEMPTS", title, "REASON"}}
	for _, j := range jobs {
		_, at := since(state, j)
		reason := j.Failure.Reason
		if j.Failure.Code != "" {
			reason = j.Failure.Code + ": " + reason
		}
		if j.Holds {
			reason = "holds its key, " + reason
		}
		rows = append(rows, []string{
			j.ID, cut(j.Type, 40), cut(j.AggregateID, 40), j.Sink, fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts), clock(at), cut(reason, reasonWidth),
		})
	}
	p.table(rows)
	if more != "" {
		p.line("\nmore: %s", more)
	}
}
