package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
)

func (p *program) pauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause SCOPE NAME",
		Short: "Hold deliveries of a sink, a tenant or a mail domain",
		Long: "Pause makes all relays hold jobs of one sink, tenant or mail domain: SCOPE is sink, tenant or domain.\n" +
			"What is being delivered ends; nothing is lost, and no attempt is counted. The pause lasts until resume,\n" +
			"or for as long as --for says.",
		Example: "  outbox pause sink mail --for 1h --reason \"the provider asked for it\"\n  outbox pause tenant acme",
		Args:    wants(2),
	}
	acting := actFlags(cmd)
	lasts := new(durationFlag)
	cmd.Flags().Var(lasts, "for", "resume by itself after this `time`, such as 15m")
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, args []string, out output) error {
		target, act, err := pauseArgs(args, acting)
		if err != nil {
			return err
		}
		if err := p.warnOfUnknown(ctx, s, target); err != nil {
			return err
		}
		pause := core.Pause{PauseTarget: target, For: time.Duration(*lasts), Reason: act.Reason}
		done := pausedJSON{Act: "pause", DryRun: act.DryRun, Scope: target.Scope, Name: target.Name, Reason: act.Reason}
		if *lasts > 0 { // the record has no other place for it
			act.Reason = strings.TrimPrefix(act.Reason+"; for "+lasts.String(), "; ")
		}
		if err := s.PauseBy(ctx, pause, act); err != nil {
			return err
		}
		if done.Until, err = untilOf(ctx, s, pause, act.DryRun); err != nil {
			return err
		}
		return out.print(done, func(p *page) {
			text := "until somebody resumes it"
			if *lasts > 0 {
				text = "for " + lasts.String()
			}
			p.line("%s is paused %s", plain(targetText(target)), text+inDryRun(act))
		})
	})
}

func (p *program) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume SCOPE NAME",
		Short: "End a pause",
		Long:  "Resume ends a pause, one that a sink asked for too: SCOPE is sink, tenant or domain. See stats.",
		Args:  wants(2),
	}
	acting := actFlags(cmd)
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, args []string, out output) error {
		target, act, err := pauseArgs(args, acting)
		if err != nil {
			return err
		}
		pauses, err := s.Pauses(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pauses, func(p core.Pause) bool { return p.PauseTarget == target }) {
			if err := s.ResumeBy(ctx, target, core.Act{By: act.By, DryRun: true}); err != nil {
				return err // there may be no outbox at all
			}
			return fmt.Errorf("%s is not paused; outbox stats lists what is", targetText(target))
		}
		if err := s.ResumeBy(ctx, target, act); err != nil {
			return err
		}
		return out.print(pausedJSON{Act: "resume", DryRun: act.DryRun, Scope: target.Scope, Name: target.Name, Reason: act.Reason}, func(p *page) {
			p.line("%s goes on%s", plain(targetText(target)), inDryRun(act))
		})
	})
}

// pausedJSON is what a pause or its end was about.
type pausedJSON struct {
	Act    string          `json:"act"`
	DryRun bool            `json:"dry_run"`
	Scope  core.PauseScope `json:"scope"`
	Name   string          `json:"name"`
	// Until is null after a resume, and for a pause that lasts until one.
	Until  *time.Time `json:"until"`
	Reason string     `json:"reason"`
}

// untilOf tells when a pause that was put in force ends, or would end.
func untilOf(ctx context.Context, s store, pause core.Pause, dryRun bool) (*time.Time, error) {
	if dryRun {
		if pause.For == 0 {
			return nil, nil
		}
		return timeOrNull(time.Now().Add(pause.For).UTC()), nil
	}
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pauses {
		if p.PauseTarget == pause.PauseTarget {
			return timeOrNull(p.Until), nil
		}
	}
	return nil, nil
}

// warnOfUnknown says that a pause may be meant for another sink: neither the
// configuration nor a job names this one.
func (p *program) warnOfUnknown(ctx context.Context, s store, target core.PauseTarget) error {
	if target.Scope != core.PauseSink {
		return nil
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	known := slices.Clone(p.sinks)
	for _, c := range stats.Sinks {
		known = append(known, c.Sink)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	if !slices.Contains(known, target.Name) {
		fmt.Fprintf(p.redactor.Writer(p.stderr), "outbox: warning: neither the configuration nor a job names a sink %s; there are: %s\n",
			plain(target.Name), plain(strings.Join(known, ", ")))
	}
	return nil
}

func pauseArgs(args []string, acting *act) (core.PauseTarget, core.Act, error) {
	target := core.PauseTarget{Scope: core.PauseScope(args[0]), Name: args[1]}
	if !slices.Contains([]core.PauseScope{core.PauseSink, core.PauseTenant, core.PauseDomain}, target.Scope) || target.Name == "" {
		return target, core.Act{}, &usageError{errors.New("say sink, tenant or domain, and its name: outbox pause sink mail")}
	}
	act, err := acting.act()
	return target, act, err
}

// inDryRun ends a line that tells what was done.
func inDryRun(act core.Act) string {
	if act.DryRun {
		return " (dry run: nothing was done)"
	}
	return ""
}
