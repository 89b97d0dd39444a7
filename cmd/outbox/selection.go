package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
)

// selection are the flags that narrow jobs down.
type selection struct {
	sink, tenant, eventType, key, cursor, code *string
	olderThan                                  *durationFlag
}

func selectionFlags(cmd *cobra.Command) *selection {
	f := cmd.Flags()
	s := &selection{
		sink:      f.String("sink", "", "jobs of this sink"),
		tenant:    f.String("tenant", "", "jobs of this tenant"),
		eventType: f.String("type", "", "jobs with this event type"),
		key:       f.String("key", "", "jobs with this key (aggregate id)"),
		cursor:    f.String("cursor", "", "events that this cursor parked"),
		code:      f.String("code", "", "jobs with this failure code, such as rejected"),
		olderThan: new(durationFlag),
	}
	f.Var(s.olderThan, "older-than", "jobs enqueued longer ago than this `time`, such as 15m or 7d")
	return s
}

func (s *selection) filter() core.JobFilter {
	return core.JobFilter{
		Sink: *s.sink, Tenant: *s.tenant, Type: *s.eventType, Key: *s.key, Cursor: *s.cursor, Code: *s.code,
		OlderThan: time.Duration(*s.olderThan),
	}
}

// durationFlag is a length of time as the configuration writes it: also 7d.
type durationFlag config.Duration

func (d *durationFlag) Set(text string) error {
	return (*config.Duration)(d).UnmarshalText([]byte(text))
}

func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return config.Duration(*d).String()
}

func (*durationFlag) Type() string { return "time" }

// targets are the flags of a command that does something to jobs.
type targets struct {
	*selection
	states   []core.JobState
	state    *string
	all, yes *bool
}

func targetFlags(cmd *cobra.Command, states ...core.JobState) *targets {
	f := cmd.Flags()
	return &targets{
		states:    states,
		selection: selectionFlags(cmd),
		state:     f.String("state", string(core.JobFailed), "`state` of jobs that flags select: "+orOf(states)),
		all:       f.Bool("all", false, "every failed job; with --state every one of that state"),
		yes:       f.Bool("yes", false, "really all of them, with --all"),
	}
}

// filter makes one of ids and flags. Flags select failed jobs unless --state
// says otherwise; ids select jobs of any state that the command works on.
func (t *targets) filter(cmd *cobra.Command, ids []string, dryRun bool) (core.JobFilter, error) {
	wrong := func(text string) (core.JobFilter, error) { return core.JobFilter{}, &usageError{errors.New(text)} }
	filter := t.selection.filter()
	narrowed := !reflect.ValueOf(filter).IsZero()
	switch {
	case len(ids) > 0 && *t.all:
		return wrong("give ids or --all, not both")
	case narrowed && *t.all:
		return wrong("--all selects every job: leave it out, or the flags that narrow it down")
	case len(ids) == 0 && !narrowed && !*t.all:
		return wrong("select jobs by id or by --sink, --tenant, --type, --key, --cursor, --older-than or --code, or all with --all")
	case *t.all && !*t.yes && !dryRun:
		return wrong("--all touches every " + *t.state + " job: look with --dry-run first, then add --yes")
	}
	if len(ids) > 0 {
		filter.IDs = ids
	}
	if len(ids) == 0 || cmd.Flags().Changed("state") {
		var err error
		if filter.State, err = parseState(*t.state); err != nil {
			return filter, err
		}
		if !slices.Contains(t.states, filter.State) {
			return wrong(fmt.Sprintf("--state must be %s: %s doesn't work on jobs that are %s", orOf(t.states), cmd.Name(), filter.State))
		}
	}
	return filter, nil
}

// orOf lists states for people.
func orOf(states []core.JobState) string {
	words := make([]string, len(states))
	for i, state := range states {
		words[i] = string(state)
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// act are the flags that say who does something, and why.
type act struct {
	by, reason *string
	dryRun     *bool
}

func actFlags(cmd *cobra.Command) *act {
	f := cmd.Flags()
	return &act{
		by:     f.String("by", "", "who does it (default the user that you are logged in as)"),
		reason: f.String("reason", "", "a `sentence` that says why, for the record"),
		dryRun: f.Bool("dry-run", false, "only say what would be done"),
	}
}

func (a *act) act() (core.Act, error) {
	by := cmp.Or(*a.by, loggedIn())
	if by == "" {
		return core.Act{}, &usageError{errors.New("who does it? Say so with --by")}
	}
	return core.Act{By: by, Reason: *a.reason, DryRun: *a.dryRun}, nil
}

// loggedIn names the person at the terminal, also behind sudo.
func loggedIn() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if behind := os.Getenv("SUDO_USER"); behind != "" && behind != name {
		return fmt.Sprintf("%s (as %s)", behind, name)
	}
	return name
}
