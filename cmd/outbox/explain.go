package main

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
)

func (p *program) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Say why an event or a job has not gone out",
		Long: "Explain says what holds an event of the log, or a job, and until when: a job of its key that comes first,\n" +
			"a pause, a lease, a backoff, a cursor that nobody runs. The nearest cause stands first.",
		Args: wants(1),
	}
	return p.operation(cmd, lookTimeout, func(ctx context.Context, s store, args []string, out output) error {
		e, err := s.Explain(ctx, args[0])
		if err != nil {
			return err
		}
		return out.print(explanationObject(e), func(p *page) { explanationPage(p, e) })
	})
}

// The JSON form of core.Explanation, for scripts: keys are only added.
type (
	explanationJSON struct {
		ID     string      `json:"id"`
		State  string      `json:"state"`
		Causes []causeJSON `json:"causes"`
		Job    *jobJSON    `json:"job"`
	}
	causeJSON struct {
		Code  string     `json:"code"`
		Text  string     `json:"text"`
		Until *time.Time `json:"until"`
	}
)

func explanationObject(e core.Explanation) explanationJSON {
	o := explanationJSON{ID: e.ID, State: e.State, Causes: make([]causeJSON, len(e.Causes))}
	for i, c := range e.Causes {
		o.Causes[i] = causeJSON{c.Code, c.Text, timeOrNull(c.Until)}
	}
	if e.Job != nil {
		job := jobObject(*e.Job)
		o.Job = &job
	}
	return o
}

// whatToDo are the commands that end a cause.
var whatToDo = map[string]string{
	core.CausePredecessor:   "outbox explain, retry or discard that job",
	core.CausePaused:        "outbox resume ends a pause",
	core.CauseFailed:        "outbox retry ID sends it again; outbox discard ID gives it up",
	core.CauseUnknown:       "outbox retry ID sends it again, for a second time if it has arrived; outbox discard ID leaves it at that",
	core.CauseCursorStopped: "outbox relay runs the routes of a configuration; outbox forget-cursor drops a route that is gone",
	core.CauseBehind:        "outbox stats shows the cursor, /readyz of its relay what it waits for",
}

// shellWord matches ids that need no quotes in a command.
var shellWord = regexp.MustCompile(`^[A-Za-z0-9._:/-]+$`)

func explanationPage(p *page, e core.Explanation) {
	if j := e.Job; j != nil {
		p.line("job %s is %s", plain(j.ID), e.State)
		what := []string{"event " + j.EventID, "type " + j.Type}
		if j.AggregateID != "" {
			what = append(what, "key "+j.AggregateID)
		}
		if j.Tenant != "" {
			what = append(what, "tenant "+j.Tenant)
		}
		what = append(what, "sink "+j.Sink)
		if j.Cursor != "" {
			what = append(what, "parked by cursor "+j.Cursor)
		}
		p.line("%s", plain(strings.Join(what, ", ")))
	} else {
		p.line("event %s is %s", plain(e.ID), e.State)
	}
	p.line("")
	var rows [][]string
	said := map[string]bool{}
	for _, c := range e.Causes {
		rows = append(rows, []string{c.Code, c.Text})
		if do := whatToDo[c.Code]; do != "" && !said[c.Code] {
			if e.Job != nil && shellWord.MatchString(e.Job.ID) {
				do = strings.ReplaceAll(do, " ID", " "+e.Job.ID)
			}
			rows = append(rows, []string{" ", "→ " + do})
			said[c.Code] = true
		}
	}
	p.table(rows)
}
