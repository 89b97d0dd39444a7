package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
)

func (p *program) retryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Send failed jobs again",
		Long: "Retry makes jobs ready again that failed, or whose outcome is unknown: their attempts start anew, and\n" +
			"destinations are told that they are redriven. Jobs of one key keep their order.\n\n" +
			"Select them by id, or by flags, all of which must match; flags select failed jobs, and those of unknown\n" +
			"outcome only with --state unknown: they may have been delivered. With --state ready, or by id, jobs that\n" +
			"wait for their time are made due. What is done is recorded, see acts.",
		Example: "  outbox retry --sink mail --code rejected --dry-run\n" +
			"  outbox retry --sink mail --spread 10m --reason \"the provider is well again\"",
		Args: cobra.ArbitraryArgs,
	}
	targets, acting := targetFlags(cmd, core.JobFailed, core.JobUnknown, core.JobReady), actFlags(cmd)
	spread := new(durationFlag)
	cmd.Flags().Var(spread, "spread", "spread the due times over this `time`, such as 10m")
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, ids []string, out output) error {
		ids, err := findJobs(ctx, s, ids)
		if err != nil {
			return err
		}
		return onJobs(cmd, "retry", targets, acting, ids, out, func(filter core.JobFilter, act core.Act) (int64, error) {
			act.Spread = time.Duration(*spread)
			return s.Retry(ctx, filter, act)
		})
	})
}

func (p *program) discardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard [ID...]",
		Short: "Give jobs up for good",
		Long: "Discard removes jobs that are not being delivered. A key that one of them held goes on. There is no way\n" +
			"back: look with --dry-run first.\n\n" +
			"Select them by id, or by flags, all of which must match; flags select failed jobs unless --state says\n" +
			"otherwise. What is done is recorded, see acts.",
		Example: "  outbox discard --type order.draft --older-than 7d --reason \"drafts are not published any more\"",
		Args:    cobra.ArbitraryArgs,
	}
	targets, acting := targetFlags(cmd, core.JobReady, core.JobCompleted, core.JobFailed, core.JobUnknown), actFlags(cmd)
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, ids []string, out output) error {
		ids, err := findJobs(ctx, s, ids)
		if err != nil {
			return err
		}
		return onJobs(cmd, "discard", targets, acting, ids, out, func(filter core.JobFilter, act core.Act) (int64, error) {
			return s.Discard(ctx, filter, act)
		})
	})
}

// actJSON is what an act on jobs did.
type actJSON struct {
	Act    string `json:"act"`
	DryRun bool   `json:"dry_run"`
	// Count of jobs that were changed, or would be.
	Count int64 `json:"count"`
}

// onJobs does something to the jobs that were selected, and says to how many.
// Ids that select none are an error: they are misspelt, or what they name is in
// a state that the command doesn't work on.
func onJobs(cmd *cobra.Command, what string, targets *targets, acting *act, ids []string, out output,
	do func(core.JobFilter, core.Act) (int64, error),
) error {
	filter, err := targets.filter(cmd, ids, *acting.dryRun)
	if err != nil {
		return err
	}
	act, err := acting.act()
	if err != nil {
		return err
	}
	n, err := do(filter, act)
	if err != nil {
		if n > 0 {
			err = fmt.Errorf("%w; %s before that: do it again for the rest", err, done(what, n))
		}
		return err
	}
	err = out.print(actJSON{what, act.DryRun, n}, func(p *page) {
		switch {
		case n == 0:
			p.line("nothing matched: no job to %s", what)
		case act.DryRun:
			p.line("would %s %s", what, jobCount(n))
		default:
			p.line("%s", done(what, n))
		}
	})
	if missed := int64(len(ids)) - n; err == nil && len(ids) > 0 && missed > 0 {
		return fmt.Errorf("%d of %d ids matched no job that can be %s: see outbox get ID", missed, len(ids), past(what))
	}
	return err
}

func jobCount(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

func past(what string) string {
	if what == "retry" {
		return "retried"
	}
	return what + "ed"
}

func done(what string, n int64) string { return past(what) + " " + jobCount(n) }
