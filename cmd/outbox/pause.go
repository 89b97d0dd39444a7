package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		if err := s.PauseBy(ctx, core.Pause{PauseTarget: target, For: time.Duration(*lasts), Reason: act.Reason}, act); err != nil {
			return err
		}
		return out.print(pausedJSON{"pause", act.DryRun, target.Scope, target.Name}, func(p *page) {
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
			return fmt.Errorf("%s is not paused; outbox stats lists what is", targetText(target))
		}
		if err := s.ResumeBy(ctx, target, act); err != nil {
			return err
		}
		return out.print(pausedJSON{"resume", act.DryRun, target.Scope, target.Name}, func(p *page) {
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
